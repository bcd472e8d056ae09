// Package docs holds the documents that programs of this module serve.
package docs

import _ "embed"

// OpenAPI describes the HTTP API of the control service.
//
//go:embed openapi.yaml
var OpenAPI []byte
