package config_test

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/backend/disk"
	"github.com/podyard/podyard/backend/docker"
	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/backend/postgres"
	"github.com/podyard/podyard/backend/process"
	"github.com/podyard/podyard/backend/webhook"
	"github.com/podyard/podyard/httpapi/server/config"
)

// Where an option of a backend comes from: a path of the configuration begins with a slash, and
// everything else is the reason why the file does not have it.
const (
	byProgram = "the program connects the parts of a server"
	byFlag    = "a flag of the program"
	forTests  = "for programs that embed the backend, and their tests"
	byMachine = "found out from the machine or the engine"
	enough    = "nobody has needed another value than the default"
)

var options = map[reflect.Type]map[string]string{
	reflect.TypeFor[docker.Options](): {
		"Engine": "DOCKER_HOST and the context of the command docker say it", "Host": byProgram, "Trusted": byProgram,
		"LocalImages": "/containers/localImages", "ImageRecheck": "/containers/imageRecheck", "Subnet": "/containers/subnet",
		"ImageAge": "/containers/imageDays", "DiskFree": "/containers/diskFree", "Runtime": "/containers/runtime",
		"UserNamespaces": "/containers/userNamespaces", "Isolation": "/containers/isolation", "Reachable": byProgram,
		"Deny": "/containers/deny", "AllowNewPrivileges": "/containers/newPrivileges",
		"PidsLimit": "/containers/pids", "Ulimits": "/containers/ulimits", "CapDrop": "/containers/capDrop", "Init": "/containers/init",
		"ShmSize": "/containers/shmSize", "DiskLimit": "/containers/diskLimit", "CDIDirs": "/containers/cdiDirs", "LogSize": "/containers/logSize",
		"Resync": forTests, "Logger": byProgram,
	},
	reflect.TypeFor[process.Options](): {
		"Images": "/images", "Host": byProgram, "ReadyTimeout": enough, "Grace": enough, "LogSize": enough,
		"GPUs": byMachine, "Trusted": byProgram, "Isolation": "/processes", "Logger": byProgram,
	},
	reflect.TypeFor[process.Isolation](): {
		"Launch": byProgram, "Mode": "/processes/isolation", "User": "/processes/user", "Hide": byProgram,
		"Processes": "/processes/limit", "Cgroup": "/processes/cgroup",
	},
	reflect.TypeFor[process.Image](): {
		"Command": "/images/*/command", "Self": "only a program knows what it does when it is started again", "Dir": "/images/*/dir",
		"Env": "/images/*/env", "AllowEnv": "/images/*/allowEnv", "AllowArgs": "/images/*/allowArgs", "User": "/images/*/user", "Users": "/images/*/users",
	},
	reflect.TypeFor[disk.Options](): {
		"Key": "/secretKey", "OldKeys": "/oldSecretKeys", "Clock": forTests, "Logger": byProgram, "KeepFree": enough, "Ballast": enough,
		"Cache": enough, "WorkerGone": byProgram, "Observer": byProgram,
	},
	reflect.TypeFor[postgres.Options](): {
		"Key": "/secretKey", "OldKeys": "/oldSecretKeys", "Pool": "a program that embeds the store has it; a server has a URL", "MaxConns": "pool_max_conns of the URL", "Name": byFlag, "Clock": forTests, "Logger": byProgram,
	},
	reflect.TypeFor[memory.RuntimeOptions](): {
		"Clock": forTests, "Seed": forTests, "Scripts": forTests, "CUDA": forTests,
	},
	reflect.TypeFor[webhook.Options](): {
		"AllowPrivate": "/webhook/allowPrivate", "Deny": "/webhook/deny", "Secrets": "/webhook/secrets",
		"Timeout": enough, "Clock": forTests, "UserAgent": enough, "Transport": forTests,
	},
}

// Whoever adds an option to a backend says here how an operator sets it, or why nobody does.
func TestEveryOptionOfABackendIsInTheFileOrHasAReason(t *testing.T) {
	for typ, known := range options {
		var have []string
		for f := range typ.Fields() {
			if !f.IsExported() {
				continue
			}
			have = append(have, f.Name)
			from, ok := known[f.Name]
			switch {
			case !ok:
				t.Errorf("%v.%s: which field of the configuration sets it? If none does, say why in this test", typ, f.Name)
			case strings.HasPrefix(from, "/") && !isField(reflect.TypeFor[config.Config](), strings.Split(from[1:], "/")):
				t.Errorf("%v.%s: the configuration has no %s", typ, f.Name, from)
			}
		}
		for name := range known {
			if !slices.Contains(have, name) {
				t.Errorf("%v has no %s any more", typ, name)
			}
		}
	}
}

// isField reports whether a path leads to a field of t. A star is any member of a map.
func isField(t reflect.Type, path []string) bool {
	if len(path) == 0 {
		return true
	}
	if t.Kind() == reflect.Map {
		return path[0] == "*" && isField(t.Elem(), path[1:])
	}
	for f := range t.Fields() {
		if f.Tag.Get("json") == path[0] {
			return isField(f.Type, path[1:])
		}
	}
	return false
}

// The page names what a reload does not take, and the tags of the fields decide it.
func TestThePageHasTheFieldsThatNeedARestart(t *testing.T) {
	page, err := os.ReadFile("../../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(page), "`restart` has changed in the file and needs a restart: ")
	list, _, _ = strings.Cut(list, ".")
	var have, want []string
	for _, m := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(list, -1) {
		have = append(have, m[1])
	}
	for f := range reflect.TypeFor[config.Config]().Fields() {
		switch name, reload := f.Tag.Get("json"), f.Tag.Get("reload"); {
		case name == "":
		case reload == "restart":
			want = append(want, name)
		case reload != "live":
			t.Errorf("%s has no tag reload: live or restart", f.Name)
		}
	}
	slices.Sort(have)
	slices.Sort(want)
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("fields that need a restart (-tags +page):\n%s", diff)
	}
}
