package memory_test

import (
	"testing"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/serverless/serverlesstest"
	"github.com/podyard/podyard/serverless/servers"
	"github.com/podyard/podyard/serverless/servers/serverstest"
	"github.com/podyard/podyard/serverless/workers"
)

func TestServers(t *testing.T) {
	serverstest.TestStore(t, func(*testing.T) [2]servers.Store {
		s := memory.NewServers()
		return [2]servers.Store{s, s}
	})
}

func TestPresence(t *testing.T) {
	serverlesstest.TestPresence(t, func(*testing.T) [2]workers.Presence {
		p := memory.NewPresence()
		return [2]workers.Presence{p, p}
	})
}

func TestRecords(t *testing.T) {
	serverstest.TestRecords(t, func(*testing.T) [2]servers.Records {
		s := memory.NewServers()
		return [2]servers.Records{s, s}
	})
}
