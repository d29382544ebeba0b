package docker

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
)

// desktopSocket is where Docker Desktop listens for the user who has started it, below the home
// directory. The default socket of Docker is a link to it only where an administrator allowed that.
const desktopSocket = ".docker/run/docker.sock"

// Address returns where [Open] and [Ping] look for an engine without an address of their own, in
// the format of DOCKER_HOST: DOCKER_HOST itself, then the socket of the context that the command
// docker uses, then that of Docker Desktop where the default socket is missing. It is empty for the
// default socket. A context on another machine is not used: DOCKER_HOST names one on purpose.
func Address() string {
	if addr := os.Getenv("DOCKER_HOST"); addr != "" {
		return addr
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	dir := os.Getenv("DOCKER_CONFIG")
	if dir == "" {
		dir = filepath.Join(home, ".docker")
	}
	if addr := contextAddress(dir); addr != "" {
		return addr
	}
	if _, err := os.Stat("/var/run/docker.sock"); err == nil {
		return ""
	}
	if path := filepath.Join(home, desktopSocket); isSocket(path) {
		return "unix://" + path
	}
	return ""
}

func isSocket(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode()&os.ModeSocket != 0
}

// contextAddress returns the address of the current context, if it is on this machine.
func contextAddress(dir string) string {
	name := os.Getenv("DOCKER_CONTEXT")
	if name == "" {
		var config struct {
			CurrentContext string `json:"currentContext"`
		}
		readJSON(filepath.Join(dir, "config.json"), &config)
		name = config.CurrentContext
	}
	if name == "" || name == "default" {
		return ""
	}
	var meta struct {
		Endpoints map[string]struct {
			Host string `json:"Host"`
		} `json:"Endpoints"`
	}
	sum := sha256.Sum256([]byte(name)) // the command docker names the directory so
	readJSON(filepath.Join(dir, "contexts", "meta", hex.EncodeToString(sum[:]), "meta.json"), &meta)
	addr := meta.Endpoints["docker"].Host
	if strings.HasPrefix(addr, "unix://") || strings.HasPrefix(addr, "npipe://") {
		return addr
	}
	return ""
}

// readJSON leaves v as it is where the file cannot be read: the default socket is tried then.
func readJSON(path string, v any) {
	if data, err := os.ReadFile(path); err == nil {
		_ = json.Unmarshal(data, v)
	}
}
