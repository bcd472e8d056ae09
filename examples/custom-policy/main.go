// Command custom-policy is the proxy module with a rule of its own: the policy rule custom is the
// function score. README.md says how to build, test and use it.
package main

import "github.com/warmpath/warmpath/filter/plugin"

// A module's main is never run: it starts in an init function.
func init() { plugin.Start(plugin.WithScore(score)) }

func main() {}
