package accounts

import (
	"fmt"
	"slices"
	"strings"
)

// A Permission is an area of the interface and what may be done there (docs/interface.md 5;
// docs/decisions.md 14).
type Permission struct {
	// Area is pods, registries, secrets, endpoints, endpoint, worker, account or operator. "*" is all
	// of them but worker and operator. Operator includes account.
	Area     string
	Endpoint string // of the areas endpoint and worker: the endpoint's id, "*" is any
	Level    Level
}

// The areas that are more than their scopes say. No scope names AreaAccount: it is of keys
// with "*" or operator.
const (
	AreaOperator = "operator"
	AreaWorker   = "worker"  // the worker protocol of an endpoint
	AreaAccount  = "account" // keys
)

// A Level is what may be done. Each includes those before it.
type Level uint8

// The levels. Run is the highest for the jobs of an endpoint, Write elsewhere.
const (
	Read Level = iota
	Run
	Write
)

// Covers reports whether whoever has p may do q.
func (p Permission) Covers(q Permission) bool {
	switch {
	case p.Area == "*":
		return q.Area != AreaOperator && q.Area != AreaWorker
	case p.Area == AreaOperator && q.Area == AreaAccount:
		return true
	}
	return p.Area == q.Area && p.Level >= q.Level && (p.Endpoint == "*" || p.Endpoint == q.Endpoint)
}

// allow reports whether one of the permissions covers p.
func allow(has []Permission, p Permission) bool {
	return slices.ContainsFunc(has, func(h Permission) bool { return h.Covers(p) })
}

// ParseScope reads a scope of a key: "*", "operator", "pods:read", "pods:write", the same
// for registries, secrets and endpoints, "endpoint:<id>:run", "endpoint:<id>:read" and
// "endpoint:<id>:work" (docs/decisions.md 14). Its error is a text for the user.
func ParseScope(s string) (Permission, error) {
	if s == "*" {
		return Permission{Area: "*"}, nil
	}
	parts := strings.Split(s, ":")
	switch {
	case s == AreaOperator:
		return Permission{Area: AreaOperator}, nil
	case len(parts) == 2 && (parts[0] == "pods" || parts[0] == "registries" || parts[0] == "secrets" || parts[0] == "endpoints"):
		switch parts[1] {
		case "read":
			return Permission{Area: parts[0], Level: Read}, nil
		case "write":
			return Permission{Area: parts[0], Level: Write}, nil
		}
	case len(parts) == 3 && parts[0] == "endpoint" && parts[1] != "":
		switch parts[2] {
		case "read":
			return Permission{Area: "endpoint", Endpoint: parts[1], Level: Read}, nil
		case "run":
			return Permission{Area: "endpoint", Endpoint: parts[1], Level: Run}, nil
		case "work":
			return Permission{Area: AreaWorker, Endpoint: parts[1]}, nil
		}
	}
	return Permission{}, fmt.Errorf("unknown scope %q: must be *, operator, read or write of pods, registries, secrets or endpoints (pods:read), or run, read or work of an endpoint (endpoint:ID:run)", s)
}

// permissions are those of scopes that were checked.
func permissions(scopes []string) []Permission {
	var list []Permission
	for _, s := range scopes {
		if p, err := ParseScope(s); err == nil {
			list = append(list, p)
		}
	}
	return list
}
