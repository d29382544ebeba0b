package postgres_test

import (
	"testing"

	"github.com/podyard/podyard/backend/postgres"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/serverless/serverlesstest"
	"github.com/podyard/podyard/serverless/servers"
	"github.com/podyard/podyard/serverless/servers/serverstest"
	"github.com/podyard/podyard/serverless/workers"
)

// two returns a function that empties a database and returns two Stores over it.
func two(t *testing.T) func(t *testing.T) [2]*postgres.Store {
	t.Helper()
	url := postgresql.Database(t)
	list := [2]*postgres.Store{openURL(t, url), openURL(t, url)}
	return func(t *testing.T) [2]*postgres.Store {
		empty(t, url)
		return list
	}
}

func TestServers(t *testing.T) {
	suite.SkipUnlessLong(t)
	fresh := two(t)
	serverstest.TestStore(t, func(t *testing.T) [2]servers.Store {
		s := fresh(t)
		return [2]servers.Store{s[0].Servers(), s[1].Servers()}
	})
}

func TestPresence(t *testing.T) {
	fresh := two(t)
	serverlesstest.TestPresence(t, func(t *testing.T) [2]workers.Presence {
		s := fresh(t)
		return [2]workers.Presence{s[0].Presence(), s[1].Presence()}
	})
}

func TestRecords(t *testing.T) {
	fresh := two(t)
	serverstest.TestRecords(t, func(t *testing.T) [2]servers.Records {
		s := fresh(t)
		return [2]servers.Records{s[0].Servers(), s[1].Servers()}
	})
}
