package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"navra/internal/config"
)

// defaultRole is the built-in role as a configuration would have it.
const defaultRole = `# The role local-default, which navra wrap, and stdio without principals, give the person's own machine.
roles:
  local-default:
    clearance: pii
    rules:
      - allow: {tools: ["*"], prompts: ["*"], resources: ["*"], client: [elicitation, roots]}
      - ask: {client: [sampling]}
ifc: {on_violation: ask}
filters: {secrets: {results: pseudonymise, arguments: ask}}
`

func schemaCmd(s std) *cobra.Command {
	var defaults bool
	c := &cobra.Command{
		Use: "schema", Short: "Print the JSON Schema of navra.yaml", Args: cobra.NoArgs,
		Example: "  navra schema > navra.schema.json   # and in navra.yaml: # yaml-language-server: $schema=navra.schema.json\n  navra schema --defaults",
		RunE: func(*cobra.Command, []string) error {
			text := string(config.Schema)
			if defaults {
				text = defaultRole
			}
			_, err := fmt.Fprint(s.out, text)
			return err
		},
	}
	c.Flags().BoolVar(&defaults, "defaults", false, "print the built-in role instead")
	return c
}
