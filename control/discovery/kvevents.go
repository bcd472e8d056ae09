package discovery

import (
	"errors"
	"fmt"

	"go.yaml.in/yaml/v4"

	"github.com/warmpath/warmpath/control/kvevents"
)

// KVEvents is where an engine publishes its KV events: the word auto, or the
// endpoints themselves.
type KVEvents struct {
	// Auto asks the engine (GET /kv_event_sources).
	Auto bool `yaml:"auto" json:"auto,omitempty"`
	// Endpoint is tcp://host:port of the publisher, Replay of the replay socket.
	Endpoint string `yaml:"endpoint" json:"endpoint,omitempty"`
	Replay   string `yaml:"replay" json:"replay,omitempty"`
	// Topic is a prefix of the topics to take; "" takes all.
	Topic string `yaml:"topic" json:"topic,omitempty"`
	// Model is the name under which clients ask for the base model, for a pool
	// whose policy names no models.
	Model string `yaml:"model" json:"model,omitempty"`
}

// UnmarshalYAML reads the word auto, or a mapping. Keys it doesn't know are
// refused, as everywhere in the list.
func (k *KVEvents) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind == yaml.ScalarNode {
		if node.Value != "auto" {
			return fmt.Errorf("line %d: kv_events: %q is neither auto nor a mapping", node.Line, node.Value)
		}
		*k = KVEvents{Auto: true}
		return nil
	}
	if node.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(node.Content); i += 2 {
			switch key := node.Content[i]; key.Value {
			case "auto", "endpoint", "replay", "topic", "model":
			default:
				return fmt.Errorf("line %d: field %s not found in kv_events", key.Line, key.Value)
			}
		}
	}
	type plain KVEvents
	return node.Decode((*plain)(k))
}

// On tells whether there is anything to follow.
func (k KVEvents) On() bool { return k.Auto || k.Endpoint != "" }

// reachAt puts the worker's host for * and unspecified addresses, so that an
// engine's own setting can be copied.
func (k *KVEvents) reachAt(host string) {
	for _, e := range []*string{&k.Endpoint, &k.Replay} {
		if at, err := kvevents.Reachable(*e, host); err == nil {
			*e = at
		}
	}
}

func (k KVEvents) check() error {
	switch {
	case k.Auto && (k.Endpoint != "" || k.Replay != "" || k.Topic != ""):
		return errors.New("auto and endpoints exclude each other")
	case k.Endpoint == "" && (k.Replay != "" || k.Topic != "" || k.Model != "" && !k.Auto):
		return errors.New("endpoint is missing")
	case len(k.Topic) > 255 || len(k.Model) > 255:
		return errors.New("topic and model have at most 255 bytes")
	}
	for _, e := range []string{k.Endpoint, k.Replay} {
		if e == "" {
			continue
		}
		if err := kvevents.CheckEndpoint(e); err != nil {
			return err
		}
	}
	return nil
}
