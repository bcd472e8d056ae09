package main

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/warmpath/warmpath/control"
)

// defaultControl is where a control service listens unless it was told otherwise.
const defaultControl = "http://" + control.DefaultListen

// urlValue is a flag that takes the URL of a server, without a slash at its end.
// What is no such URL is told with the flag, before anything is asked. Empty is
// left to the command.
type urlValue string

func (v *urlValue) String() string { return string(*v) }

func (v *urlValue) Type() string { return "URL" }

// Set is called by the flags' parser, which names the flag in front of the error.
func (v *urlValue) Set(text string) error {
	if text != "" {
		if err := checkURL(text); err != nil {
			return err
		}
	}
	*v = urlValue(strings.TrimSuffix(text, "/"))
	return nil
}

func checkURL(text string) error {
	u, err := url.Parse(text)
	if err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" {
		return nil
	}
	// A host with a port is the likeliest mistake.
	remedy := "http://host:port"
	if !strings.Contains(text, "//") {
		if guess, err := url.Parse("http://" + text); err == nil && guess.Host == text {
			remedy = guess.String()
		}
	}
	return fmt.Errorf("that is not a URL: write %s", remedy)
}
