// Takes the place of github.com/tidwall/pretty when the module is built (see pretty.go).
module github.com/tidwall/pretty

go 1.26.0
