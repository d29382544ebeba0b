package kube

import (
	"bufio"
	"context"
	"crypto/rand"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	networkingv1client "k8s.io/client-go/kubernetes/typed/networking/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/podstest"
)

// A realClient is a Client of a cluster. kubernetes.NewForConfig would have all kinds of objects there are.
type realClient struct {
	core       *corev1client.CoreV1Client
	networking *networkingv1client.NetworkingV1Client
}

func (c *realClient) CoreV1() corev1client.CoreV1Interface { return c.core }

func (c *realClient) NetworkingV1() networkingv1client.NetworkingV1Interface { return c.networking }

// realCluster returns a client of the cluster of PODYARD_KUBE, or skips the test.
func realCluster(t *testing.T) *realClient {
	t.Helper()
	file := os.Getenv("PODYARD_KUBE")
	if file == "" {
		t.Skip("PODYARD_KUBE names no kubeconfig: .ci/kube runs this test on a cluster of its own")
	}
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	core, err := corev1client.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	networking, err := networkingv1client.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return &realClient{core, networking}
}

// claimClass is the storage class whose claims provision serves.
const claimClass = "podyard-test"

// provision gives claims directories of the node, until the test ends. The node is this machine.
func provision(t *testing.T, api *realClient) {
	t.Helper()
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			list, err := api.core.PersistentVolumeClaims("").List(ctx, metav1.ListOptions{})
			for i := 0; err == nil && i < len(list.Items); i++ {
				c := &list.Items[i]
				if c.Spec.StorageClassName == nil || *c.Spec.StorageClassName != claimClass || c.Spec.VolumeName != "" {
					continue
				}
				kind := corev1.HostPathDirectoryOrCreate
				_, err := api.core.PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
					ObjectMeta: metav1.ObjectMeta{Name: "pv-" + string(c.UID)},
					Spec: corev1.PersistentVolumeSpec{
						Capacity: c.Spec.Resources.Requests, AccessModes: c.Spec.AccessModes, StorageClassName: claimClass,
						PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
						ClaimRef:                      &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: c.Namespace, Name: c.Name, UID: c.UID},
						PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: filepath.Join(dir, string(c.UID)), Type: &kind}},
					},
				}, metav1.CreateOptions{})
				if err != nil && !apierrors.IsAlreadyExists(err) && ctx.Err() == nil {
					t.Errorf("a volume: %v", err)
				}
			}
			time.Sleep(100 * time.Millisecond)
		}
	}()
}

// openReal opens a Runtime of its own instance, whose objects are deleted at the end. change may be nil.
func openReal(t *testing.T, api *realClient, change func(*Options)) *Runtime {
	t.Helper()
	opts := &Options{
		Instance: "t" + strings.ToLower(rand.Text()[:10]), Grace: 5 * time.Second, PullPatience: 5 * time.Second, StorageClass: claimClass,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	if change != nil {
		change(opts)
	}
	r, err := Open(t.Context(), api, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 2*time.Minute)
		defer cancel()
		for _, p := range r.pods.All() {
			if err := r.Remove(ctx, p.id, 0); err != nil && r.pods.Closed() == nil {
				t.Errorf("Remove = %v, want nil", err)
			}
		}
		if r.Close(context.WithoutCancel(t.Context())) != nil {
			t.Error("Close fails")
		}
		list, err := api.core.Namespaces().List(ctx, r.mine())
		if err != nil {
			t.Error(err)
			return
		}
		for i := range list.Items {
			if err := api.core.Namespaces().Delete(ctx, list.Items[i].Name, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		}
	})
	return r
}

func clusterProgram(args ...string) pods.Spec {
	image := os.Getenv("PODYARD_KUBE_IMAGE")
	if image == "" {
		image = "podyard.test/program:1"
	}
	return pods.Spec{Image: image, Args: args}
}

// notKept are the rules that this package does not keep, and says so.
var notKept = map[string]string{
	"TheDiskStaysForAnotherRun":     "the file system of a container does not outlive its run",
	"ANetworkVolumeOutlivesItsPods": "there are no network volumes",
}

func TestRuntimeOnACluster(t *testing.T) {
	api := realCluster(t)
	provision(t, api)
	var ranges atomic.Int32
	t.Run("cases", func(t *testing.T) {
		for _, c := range podstest.RuntimeCases() {
			t.Run(c.Name, func(t *testing.T) {
				t.Parallel()
				if why, ok := notKept[c.Name]; ok {
					t.Skip(why)
				}
				first := 30000 + 20*int(ranges.Add(1))
				c.Test(t, clusterHarness(t, api, PortRange{first, first + 19}))
			})
		}
	})
}

func clusterHarness(t *testing.T, api *realClient, ports PortRange) podstest.Harness {
	t.Helper()
	r := openReal(t, api, func(o *Options) { o.HostPorts = ports })
	runs, stubborn, tells, counts, serves := clusterProgram("run"), clusterProgram("stubborn"), clusterProgram("tell"), clusterProgram("count"), clusterProgram("serve")
	entry := clusterProgram()
	entry.Entrypoint = []string{"/program", "tell"}
	return podstest.Harness{
		Runtime: counting{r}, Dial: ask, Timeout: 3 * time.Minute,
		Reopen: func(t *testing.T) pods.Runtime {
			if err := r.Close(context.WithoutCancel(t.Context())); err != nil {
				t.Fatal(err)
			}
			return openReal(t, api, func(o *Options) { o.HostPorts, o.Instance = ports, r.opts.Instance })
		},
		Programs: podstest.Programs{
			Runs: &runs, IgnoresStop: &stubborn, Missing: &pods.Spec{Image: "127.0.0.1:1/none:1"},
			PrintsArgs: &tells, PrintsArgsByEntrypoint: &entry, Counts: &counts, Serves: &serves,
			Exits:  func(code int) pods.Spec { return clusterProgram("exit", strconv.Itoa(code)) },
			Prints: func(n int) pods.Spec { return clusterProgram("print", strconv.Itoa(n)) },
			Inside: func(args ...string) []string { return append([]string{"/program", "inside"}, args...) },
		},
	}
}

// counting gives the paths of its mounts to the counting program.
type counting struct{ *Runtime }

func (c counting) Unwrap() pods.Runtime { return c.Runtime }

func (c counting) Ensure(ctx context.Context, s pods.Spec) error {
	if slices.Equal(s.Args, []string{"count"}) {
		for _, m := range s.Mounts {
			s.Args = append(s.Args, m.Path)
		}
	}
	return c.Runtime.Ensure(ctx, s)
}

// ask returns the first line that comes from a port.
func ask(m pods.PortMapping) (string, error) {
	c, err := net.DialTimeout("tcp", net.JoinHostPort(m.IP, strconv.Itoa(m.Public)), time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	line, err := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSuffix(line, "\n"), err
}
