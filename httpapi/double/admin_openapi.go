package double

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
)

// adminSchemas are the bodies of the area.
//
//go:embed admin_schemas.json
var adminSchemas []byte

// describeAdmin returns the OpenAPI description of the area, made from its routes.
func describeAdmin() (any, error) {
	ref := func(name string) map[string]any {
		if name == "" {
			return map[string]any{"type": "object"}
		}
		return map[string]any{"$ref": "#/components/schemas/" + name}
	}
	content := func(name string) map[string]any {
		return map[string]any{"application/json": map[string]any{"schema": ref(name)}}
	}
	paths := map[string]map[string]any{}
	for _, rt := range adminRoutes() {
		op := map[string]any{
			"summary": rt.does,
			"responses": map[string]any{
				"200":     map[string]any{"description": "done", "content": content(rt.out)},
				"default": map[string]any{"description": "a problem document", "content": map[string]any{"application/problem+json": map[string]any{"schema": ref("Problem")}}},
			},
		}
		if rt.in != "" {
			op["requestBody"] = map[string]any{"content": content(rt.in)}
		}
		if _, rest, ok := strings.Cut(rt.path, "{"); ok {
			name, _, _ := strings.Cut(rest, "}")
			op["parameters"] = []any{map[string]any{"name": name, "in": "path", "required": true, "schema": map[string]any{"type": "string"}}}
		}
		if paths[rt.path] == nil {
			paths[rt.path] = map[string]any{}
		}
		paths[rt.path][strings.ToLower(rt.method)] = op
	}
	schemas, err := describeBodies()
	if err != nil {
		return nil, err
	}
	return map[string]any{
		"openapi":    "3.1.0",
		"info":       map[string]any{"title": "podyard test double: admin area", "version": "1.0.0"},
		"paths":      paths,
		"components": map[string]any{"schemas": schemas},
	}, nil
}

// describeBodies returns the schemas, with the names of faults.
func describeBodies() (any, error) {
	var schemas map[string]any
	if err := json.Unmarshal(adminSchemas, &schemas); err != nil {
		return nil, fmt.Errorf("double: schemas of the admin area: %w", err)
	}
	var names, does []string
	for _, n := range faultNames {
		names = append(names, n.Name)
		does = append(does, n.Name+": "+n.Does)
	}
	fault, _ := schemas["Fault"].(map[string]any)
	members, _ := fault["properties"].(map[string]any)
	members["name"] = map[string]any{"enum": names, "description": strings.Join(does, "\n")}
	return schemas, nil
}
