package config

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/podyard/podyard/backend/podfleet"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless/queue"
)

// An engineAt is an engine as its containers reach this machine.
type engineAt struct {
	name    string
	gateway netip.Addr
	err     error
}

func (e engineAt) HostName() string                            { return e.name }
func (e engineAt) Gateway(context.Context) (netip.Addr, error) { return e.gateway, e.err }

func TestWorkersInContainersFindTheServerOrSayWhyNot(t *testing.T) {
	remote := errors.New("the network of containers is not one of this machine")
	for _, tt := range []struct {
		name   string
		engine engineAt
		want   string
		listen string
	}{
		{"Docker", engineAt{gateway: netip.MustParseAddr("172.17.0.1")}, "http://172.17.0.1:8080/v2/x", "172.17.0.1:8080"},
		{"Docker Desktop", engineAt{name: "host.docker.internal", err: remote}, "http://host.docker.internal:8080/v2/x", ""},
		{"an engine elsewhere", engineAt{err: remote}, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := &Parts{log: slog.New(slog.DiscardHandler)}
			tcp := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080}
			w := workerURLRewriter{from: urlOf(tcp)}
			w.to, w.why = p.urlForContainers(t.Context(), tt.engine, tcp)
			listen := ""
			if p.ContainerAddr.IsValid() {
				listen = p.ContainerAddr.String()
			}
			if listen != tt.listen {
				t.Errorf("the server also listens at %q, want %q", listen, tt.listen)
			}
			const name = "RUNPOD_WEBHOOK_GET_JOB"
			worker := pods.Spec{PodID: podfleet.PodID("e", queue.WorkerID("w")), Env: map[string]string{name: w.from + "/v2/x", "OTHER": w.from + "/v2/x"}}
			env, err := w.rewrite(worker)
			switch {
			case tt.want == "":
				if !strings.Contains(problem.Of(err).Detail, "do not reach its server") || !errors.Is(err, remote) {
					t.Errorf("the worker is started with %q, error %v; want why it does not reach the server", env[name], err)
				}
			case err != nil || env[name] != tt.want || env["OTHER"] != w.from+"/v2/x":
				t.Errorf("the worker has %v, error %v; want %s=%s and the other one as it was", env, err, name, tt.want)
			}
			if pod, err := w.rewrite(pods.Spec{PodID: "abc", Env: worker.Env}); err != nil || pod[name] != w.from+"/v2/x" {
				t.Errorf("a pod that is no worker has %v, error %v; want it as it was", pod, err)
			}
			const key, url = "RUNPOD_API_KEY", "RUNPOD_API_BASE_URL"
			own := map[string]string{key: "pk_", url: w.from}
			reaches := tt.want != ""
			pod, err := w.rewrite(pods.Spec{PodID: "abc", Env: own, PlatformEnv: []string{key, url}})
			if err != nil || pod[url] != strings.TrimSuffix(tt.want, "/v2/x") || (pod[key] != "") != reaches {
				t.Errorf("a pod with a key has %v, error %v; want the address of the server, or no key", pod, err)
			}
			if pod, err := w.rewrite(pods.Spec{PodID: "abc", Env: own}); err != nil || pod[url] != w.from || pod[key] == "" {
				t.Errorf("a pod whose user has chosen both has %v, error %v; want them as they are", pod, err)
			}
		})
	}
}

func TestTheURLOfWorkersKeepsTheZoneOfAnAddress(t *testing.T) {
	got := urlOf(&net.TCPAddr{IP: net.ParseIP("fe80::1"), Port: 80, Zone: "eth0"})
	if want := "http://[fe80::1%25eth0]:80"; got != want {
		t.Errorf("workers are sent to %s, want %s", got, want)
	}
}
