package kube

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/podyard/podyard/internal/podhost"
	"github.com/podyard/podyard/pods"
)

var update = flag.Bool("update", false, "write the golden objects")

// golden compares objects with a file of testdata.
func golden(t *testing.T, name string, objects ...any) {
	t.Helper()
	var all []string
	for _, o := range objects {
		b, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(b))
	}
	got := strings.Join(all, "---\n")
	file := filepath.Join("testdata", name+".yaml")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got), -update writes it:\n%s", file, diff)
	}
}

func plain() *pods.Spec {
	return &pods.Spec{PodID: "abc123", Owner: "user-1", Gen: 2, Run: 3, Image: "busybox:1", Disk: 10}
}

func objects(t *testing.T, o *Options, s *pods.Spec, ports []podhost.Port) []any {
	t.Helper()
	d := o.withDefaults()
	if err := d.check(); err != nil {
		t.Fatal(err)
	}
	p, err := d.podObject(s, ports)
	if err != nil {
		t.Fatal(err)
	}
	state := pods.ContainerState{PodID: s.PodID, Gen: s.Gen, Run: s.Run}
	secret, err := d.secretObject(s, &record{State: state, Want: s.Ports, Ports: ports})
	if err != nil {
		t.Fatal(err)
	}
	all := []any{p, secret}
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: secret.Name, UID: "uid-1"}
	pull, err := d.pullObject(s, owner)
	if err != nil {
		t.Fatal(err)
	}
	if pull != nil {
		all = append(all, pull)
	}
	for _, c := range d.claimObjects(s, owner) {
		all = append(all, c)
	}
	return all
}

func TestAPodIsABarePodAndASecret(t *testing.T) {
	golden(t, "plain", objects(t, &Options{Instance: "test"}, plain(), nil)...)
}

func TestASpecWithEverythingIsMapped(t *testing.T) {
	s := plain()
	s.PodID, s.Owner = "worker.E.W", "a user with spaces and Großbuchstaben"
	s.Image = "registry.example.com:5000/team/tool:1"
	s.Entrypoint, s.Args = []string{"/bin/sh", "-c"}, []string{"echo $HOME $(TELL_A) $$", ""}
	s.Env = map[string]string{"TELL_odd-name.x": "$(TELL_A)", "TELL_A": "a\nb", "NVIDIA_VISIBLE_DEVICES": "all"}
	s.PortEnv = map[string]int{"PORT_70000": 70000}
	s.Ports = []pods.Port{{Private: 22, Protocol: "tcp"}, {Private: 53, Protocol: "udp"}, {Private: 8888, Protocol: "http"}, {Private: 70000, Protocol: "tcp"}}
	s.Mounts = []pods.Mount{{Path: "/workspace", Size: 20}}
	s.GPUType, s.GPUs, s.VCPU, s.Memory, s.ShmSize, s.User = "NVIDIA H100", 2, 8, 64, 512, "1000:100"
	s.Credential = pods.Credential{Username: "me", Password: "hunter2"}
	golden(t, "everything", objects(t, &Options{
		Instance: "test", Nodes: map[string]string{"pool": "gpu"}, RuntimeClass: "nvidia", StorageClass: "fast",
		Tolerations: []corev1.Toleration{{Key: "pool", Operator: corev1.TolerationOpExists}},
		GPUProducts: map[string][]string{"NVIDIA H100": {"NVIDIA-H100-80GB-HBM3", "NVIDIA-H100-PCIe"}},
		HostPorts:   PortRange{30000, 30010},
	}, s, []podhost.Port{{Private: 22, Public: 30001}, {Private: 53, UDP: true, Public: 30001}, {Private: 8888, Public: 30002}, {Private: 70000, Public: 30003}})...)
}

func TestAnOwnerHasANamespaceThatNothingComesInto(t *testing.T) {
	o := (&Options{Instance: "test", ServerNamespace: "podyard", HostPorts: PortRange{30000, 30010}, Quota: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("20")}}).withDefaults()
	all := []any{o.namespaceObject("user-1"), o.quotaObject("user-1")}
	for _, p := range o.policyObjects("user-1") {
		all = append(all, p)
	}
	golden(t, "owner", all...)
}

func TestNoSecretIsInAPod(t *testing.T) {
	s := plain()
	s.Env = map[string]string{"TOKEN": "hunter2"}
	s.Credential = pods.Credential{Username: "me", Password: "hunter3"}
	o := (&Options{Instance: "test"}).withDefaults()
	p, err := o.podObject(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	if text := p.String(); strings.Contains(text, "hunter") {
		t.Errorf("the Pod has a secret value:\n%s", text)
	}
}

func TestAPodWithoutGPUsSeesNone(t *testing.T) {
	s := plain()
	s.Env = map[string]string{"NVIDIA_VISIBLE_DEVICES": "all", "Z": "last"}
	o := (&Options{Instance: "test"}).withDefaults()
	env := o.env(s)
	if last := env[len(env)-1]; len(env) != 2 || last != noGPU {
		t.Errorf("env = %v, want Z, and NVIDIA_VISIBLE_DEVICES=void instead of the owner's", env)
	}
	if key := env[0].ValueFrom.SecretKeyRef.Key; key != envKey(s, 1) {
		t.Errorf("Z is read from key %s, want %s, where the Secret has it", key, envKey(s, 1))
	}
}

func TestWhatThisRuntimeCannotDoIsRefused(t *testing.T) {
	o := (&Options{Instance: "test"}).withDefaults()
	for name, change := range map[string]func(*pods.Spec){
		"a GPU by name":           func(s *pods.Spec) { s.GPUs, s.Devices = 1, []string{"GPU-1"} },
		"a network volume":        func(s *pods.Spec) { s.Mounts = []pods.Mount{{VolumeID: "v", Path: "/v"}} },
		"a user by name":          func(s *pods.Spec) { s.User = "root" },
		"a group by name":         func(s *pods.Spec) { s.User = "0:root" },
		"a user that is no int32": func(s *pods.Spec) { s.User = "4294967296" },
	} {
		s := plain()
		change(s)
		if _, err := o.podObject(s, nil); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestCredentialsAreForTheRegistryOfTheImage(t *testing.T) {
	for _, c := range []struct{ image, registry, want string }{
		{"busybox", "", dockerHub},
		{"team/tool:1", "", dockerHub},
		{"docker.io/team/tool", "", dockerHub},
		{"localhost/tool", "", "localhost"},
		{"registry.example.com/tool", "", "registry.example.com"},
		{"127.0.0.1:5000/tool", "", "127.0.0.1:5000"},
		{"tool", "registry.example.com", "registry.example.com"},
	} {
		s := pods.Spec{Image: c.image, Credential: pods.Credential{Registry: c.registry}}
		if got := registryKey(&s); got != c.want {
			t.Errorf("image %q, registry %q: %q, want %q", c.image, c.registry, got, c.want)
		}
	}
}

func TestWrongOptionsAreRefused(t *testing.T) {
	for name, o := range map[string]Options{
		"no instance":             {},
		"an instance of no label": {Instance: "A b"},
		"a namespace of no label": {Instance: "a", Namespace: "A"},
		"a range the wrong way":   {Instance: "a", HostPorts: PortRange{2, 1}},
		"a range too far":         {Instance: "a", HostPorts: PortRange{1, 65536}},
		"a negative grace":        {Instance: "a", Grace: -1},
	} {
		if err := o.check(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestEachRunHasKeysOfItsOwn(t *testing.T) {
	o := (&Options{Instance: "test"}).withDefaults()
	keys := map[string]bool{}
	for run := range uint64(3) {
		s := plain()
		s.Run, s.Env = run, map[string]string{"A": "1"}
		secret, err := o.secretObject(s, &record{})
		if err != nil {
			t.Fatal(err)
		}
		key := o.env(s)[0].ValueFrom.SecretKeyRef.Key
		if string(secret.Data[key]) != "1" || keys[key] {
			t.Errorf("run %d reads key %s, which has %q, and others read %v", run, key, secret.Data[key], keys)
		}
		keys[key] = true
	}
}

func TestLocalPortsAreAtTheAddressInTheCluster(t *testing.T) {
	r := &Runtime{opts: (&Options{Instance: "test", HostPorts: PortRange{30000, 30010}}).withDefaults()}
	s := plain()
	s.Ports, s.LocalPorts = []pods.Port{{Private: 80, Protocol: "http"}}, true
	ports, err := r.allocate(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := r.opts.podObject(s, ports)
	if err != nil || p.Spec.Containers[0].Ports[0].HostPort != 0 {
		t.Errorf("the Pod is %v, %v, want no host port", p, err)
	}
	got := r.opts.mappings(s.Ports, ports, &corev1.PodStatus{PodIP: "10.1.2.3", HostIP: "192.0.2.1"})
	if len(got) != 1 || got[0].IP != "10.1.2.3" || got[0].Public != 80 {
		t.Errorf("the port is at %+v, want 10.1.2.3:80", got)
	}
}

func TestAPodKnowsItsPublicPorts(t *testing.T) {
	o := (&Options{Instance: "test"}).withDefaults()
	s := plain()
	s.Ports = []pods.Port{{Private: 22, Protocol: "tcp"}, {Private: 53, Protocol: "udp"}, {Private: 70000, Protocol: "tcp"}}
	for _, c := range []struct {
		ports []podhost.Port
		want  map[string]string
	}{
		{[]podhost.Port{{Private: 22, Public: 30001}, {Private: 70000, Public: 30002}}, map[string]string{"RUNPOD_TCP_PORT_22": "30001", "RUNPOD_UDP_PORT_53": "53", "RUNPOD_TCP_PORT_70000": "30002"}},
		{nil, map[string]string{"RUNPOD_TCP_PORT_22": "22", "RUNPOD_UDP_PORT_53": "53", "RUNPOD_TCP_PORT_70000": "20000"}}, // at the address in the cluster
	} {
		secret, err := o.secretObject(s, &record{Ports: c.ports})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, v := range o.env(s) {
			if v.ValueFrom != nil && v.ValueFrom.SecretKeyRef != nil {
				got[v.Name] = string(secret.Data[v.ValueFrom.SecretKeyRef.Key])
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}
