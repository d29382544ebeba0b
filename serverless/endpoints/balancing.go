package endpoints

import (
	"strconv"
	"strings"
)

// Variables of the environment that say how the workers of a load-balancing endpoint are
// reached (docs/decisions.md 44).
const (
	EnvPort       = "PORT"
	EnvHealthPort = "PORT_HEALTH"
	EnvHealthPath = "HEALTH_CHECK_PATH"
)

// Defaults of these variables. The default of EnvHealthPort is the value of EnvPort.
const (
	DefaultPort       = 80
	DefaultHealthPath = "/ping"
)

// Balances reports whether requests go directly to the workers of e, without a queue.
func (e *Endpoint) Balances() bool { return e.Type == LoadBalancerType }

// typeName returns the type of e on the wire.
func (e *Endpoint) typeName() Type {
	if e.Type == "" {
		return QueueType
	}
	return e.Type
}

// A Listener says where a worker of a load-balancing endpoint listens.
type Listener struct {
	Port       int
	HealthPort int
	HealthPath string // begins with '/'
}

// Listener returns where the workers of e listen, as the environment of e says.
func (e *Endpoint) Listener() Listener {
	l := Listener{Port: portOr(e.Container.Env[EnvPort], DefaultPort), HealthPath: e.Container.Env[EnvHealthPath]}
	l.HealthPort = portOr(e.Container.Env[EnvHealthPort], l.Port)
	if !isHealthPath(l.HealthPath) {
		l.HealthPath = DefaultHealthPath
	}
	return l
}

func portOr(text string, def int) int {
	if n, ok := parsePort(text); ok {
		return n
	}
	return def
}

func parsePort(text string) (n int, ok bool) {
	n, err := strconv.Atoi(text)
	return n, err == nil && 1 <= n && n <= 65535
}

// isHealthPath reports whether a path can be asked for: printable ASCII after a '/'.
func isHealthPath(path string) bool {
	return strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "//") &&
		!strings.ContainsFunc(path, func(r rune) bool { return r <= ' ' || r > '~' || r == '#' })
}

// balancing checks the rules of load-balancing endpoints for e.
func (v endpointRules) balancing(e *Endpoint) {
	if !v.balances || !e.Balances() {
		return
	}
	if e.Scaling.Type == QueueDelay {
		v.BadRequest("/scaling/type", "must be REQUEST_COUNT for an endpoint of the type LOAD_BALANCER")
	}
	for _, name := range []string{EnvPort, EnvHealthPort} {
		if text, given := e.Container.Env[name]; given {
			if _, ok := parsePort(text); !ok {
				v.BadRequest("/env/"+name, "must be a port, from 1 to 65535")
			}
		}
	}
	if path, given := e.Container.Env[EnvHealthPath]; given && !isHealthPath(path) {
		v.BadRequest("/env/"+EnvHealthPath, "must be a path that begins with '/'")
	}
}
