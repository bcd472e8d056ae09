package control

import (
	"context"
	"fmt"
	"time"

	"github.com/warmpath/warmpath/control/discovery"
)

// listName is the source that file, config and PUT /v1/workers speak for.
func (c *Config) listName() string {
	if c.WorkersFile != "" {
		return "file " + c.WorkersFile
	}
	return "list"
}

// newLists joins the worker list with what the sources find. The list wins.
func newLists(cfg *Config) *discovery.Lists {
	names := []string{cfg.listName()}
	for _, source := range cfg.Sources {
		names = append(names, source.Name())
	}
	return discovery.NewLists(names...)
}

// tell takes the finding of a source in.
func (s *Service) tell(source string, f discovery.Finding) error {
	s.listMu.Lock()
	defer s.listMu.Unlock()
	joined, changed, err := s.lists.Tell(source, f, time.Now())
	if err != nil || !changed {
		return err
	}
	return s.applyList(joined)
}

// follow runs a source until ctx ends.
func (s *Service) follow(ctx context.Context, source discovery.Source) error {
	log := s.log.With("source", source.Name())
	last, ignored := "", ""
	return source.Run(ctx, func(f discovery.Finding) {
		if ctx.Err() != nil {
			return
		}
		if text := fmt.Sprint(f.Ignored); text != ignored && f.Err == nil {
			if ignored = text; len(f.Ignored) > 0 {
				log.Warn("settings of workers are ignored", "settings", text)
			}
		}
		err := s.tell(source.Name(), f)
		if err == nil {
			err = f.Err
		}
		switch {
		case err != nil && err.Error() != last:
			last = err.Error()
			log.Warn("no worker list, keeping the last one", "err", err)
		case err == nil && last != "":
			last = ""
			log.Info("worker list again", "workers", len(f.Workers))
		}
	})
}
