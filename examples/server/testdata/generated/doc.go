// Package generated pins oapi-codegen and what its clients import. testdata has a program for each generator: a test
// puts it beside a client that was made from the document of a running server.
package generated

import _ "github.com/oapi-codegen/runtime" // of the client, which is not kept
