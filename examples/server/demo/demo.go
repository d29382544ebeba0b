// Package demo is what a newcomer tries: the endpoint echo, which is a Go function; the
// endpoint hello, whose workers are processes; and the image podyard/web of a pod. The
// processes are the program itself, started with another argument.
package demo

import (
	"context"
	"runtime"
	"strings"

	"github.com/podyard/podyard/backend/process"
)

// The arguments that have the program be an image.
const (
	HelloCommand = "podyard-hello"
	webCommand   = "podyard-web"
)

// Images are commands of this program.
func Images() map[string]process.Image {
	return map[string]process.Image{
		WebImage:   {Command: []string{"podyard", webCommand}, Self: true, Users: []string{"*"}},
		HelloImage: {Command: []string{"podyard", HelloCommand}, Self: true, Users: []string{"*"}},
	}
}

// Command is the image that the arguments of the program ask for; nil for none.
func Command(args []string) func(ctx context.Context, env func(string) string) error {
	if len(args) < 2 {
		return nil
	}
	return map[string]func(context.Context, func(string) string) error{
		HelloCommand: workHello, webCommand: serveWeb,
	}[args[1]]
}

// Try are two command lines for a newcomer: a job and a pod.
func Try(url, key, flavor string) [2]string {
	curl := "curl -H " + quote("Authorization: Bearer "+key) + " "
	return [2]string{
		curl + "-d " + quote(`{"input":{"hello":"world"}}`) + " " + url + "/v2/" + EchoEndpoint + "/runsync",
		curl + "-H " + quote("Content-Type: application/json") + " -d " + quote(`{"name":"web","image":"`+WebImage+`","cpu":{"id":"`+flavor+`","vcpuCount":2},"ports":["8000/http"]}`) + " " + url + "/v2/pods",
	}
}

// TryWorker are two lines for somebody who has started a worker: a job, and what a client reads.
func TryWorker(url, key, endpoint string) [2]string {
	set, and := "export ", " "
	if runtime.GOOS == "windows" {
		set, and = "set ", "&& set "
	}
	return [2]string{
		"curl -H " + quote("Authorization: Bearer "+key) + " -d " + quote(`{"input":{}}`) + " " + url + "/v2/" + endpoint + "/runsync",
		set + "RUNPOD_API_KEY=" + key + and + "RUNPOD_ENDPOINT_BASE_URL=" + url + "/v2",
	}
}

// quote makes one word of a text, for the shell of the system: cmd.exe knows double quotes only.
func quote(text string) string {
	if runtime.GOOS == "windows" {
		return `"` + strings.ReplaceAll(text, `"`, `\"`) + `"`
	}
	return "'" + text + "'"
}
