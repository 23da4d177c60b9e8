package config

import _ "embed"

// Schema is the JSON Schema of the configuration, for editors. It says the same as the reader, as far as a schema can.
//
//go:embed schema.json
var Schema []byte
