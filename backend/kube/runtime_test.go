package kube

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/podstest"
)

func TestRuntime(t *testing.T) {
	podstest.TestRuntime(t, func(t *testing.T) podstest.Harness {
		api := cluster(t)
		opts := &Options{Instance: "test"}
		r := open(t, api, opts)
		return podstest.Harness{
			Runtime: r,
			Reopen: func(t *testing.T) pods.Runtime {
				if err := r.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				return open(t, api, opts)
			},
			Programs: podstest.Programs{
				Runs:        &pods.Spec{Image: imageRuns},
				IgnoresStop: &pods.Spec{Image: imageIgnores},
				Missing:     &pods.Spec{Image: imageMissing},
				Prints:      func(n int) pods.Spec { return pods.Spec{Image: imagePrints + strconv.Itoa(n)} },
				Exits:       func(code int) pods.Spec { return pods.Spec{Image: imageExits + strconv.Itoa(code)} },
			},
		}
	})
}

// await waits until a pod is in a phase.
func await(t *testing.T, r *Runtime, id string, phase pods.Phase) pods.ContainerState {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		all, err := r.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range all {
			if s.PodID == id && s.Phase == phase {
				return s
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("pods are %+v, want %s to be %s", all, id, phase)
		}
		time.Sleep(time.Millisecond)
	}
}

func ensure(t *testing.T, r *Runtime, s *pods.Spec) {
	t.Helper()
	if err := r.Ensure(t.Context(), *s); err != nil {
		t.Fatal(err)
	}
}

func TestRemoveLeavesNoObjectOfThePod(t *testing.T) {
	api := cluster(t)
	r := open(t, api, &Options{Instance: "test"})
	s := plain()
	s.Image, s.Mounts = imageRuns, []pods.Mount{{Path: "/workspace", Size: 1}}
	s.Credential = pods.Credential{Username: "me", Password: "hunter2"}
	ensure(t, r, s)
	await(t, r, s.PodID, pods.PhaseHealthy)
	count := func() (n int) {
		pods, err1 := api.CoreV1().Pods("").List(t.Context(), r.mine())
		secrets, err2 := api.CoreV1().Secrets("").List(t.Context(), r.mine())
		claims, err3 := api.CoreV1().PersistentVolumeClaims("").List(t.Context(), r.mine())
		if err1 != nil || err2 != nil || err3 != nil {
			t.Fatal(err1, err2, err3)
		}
		return len(pods.Items) + len(secrets.Items) + len(claims.Items)
	}
	if n := count(); n != 4 {
		t.Errorf("a pod has %d objects, want a Pod, two Secrets and a claim", n)
	}
	if err := r.Remove(t.Context(), s.PodID, time.Second); err != nil {
		t.Fatal(err)
	}
	if n := count(); n != 0 {
		t.Errorf("%d objects are left, want none", n)
	}
}

func TestAPodThatFindsNoNodeFailsWithWhatTheSchedulerSays(t *testing.T) {
	r := open(t, cluster(t), &Options{Instance: "test", Room: time.Millisecond})
	s := plain()
	s.Image = imageNoRoom
	ensure(t, r, s)
	if got := await(t, r, s.PodID, pods.PhaseFailed); !strings.Contains(got.Reason, "0/1 nodes are available") {
		t.Errorf("state is %+v, want the scheduler's message", got)
	}
}

func TestAPodThatOthersDeleteIsStoppedWithAReason(t *testing.T) {
	api := cluster(t)
	r := open(t, api, &Options{Instance: "test"})
	s := plain()
	s.Image = imageRuns
	ensure(t, r, s)
	await(t, r, s.PodID, pods.PhaseHealthy)
	if err := api.CoreV1().Pods(r.opts.namespace(s.Owner)).Delete(t.Context(), r.opts.name(s.PodID), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := await(t, r, s.PodID, pods.PhaseExited); !got.Stopped || got.Reason == "" {
		t.Errorf("state is %+v, want Stopped with a reason", got)
	}
}

func TestAServerThatStartsAgainLeavesPodsAsTheyRun(t *testing.T) {
	api, opts := cluster(t), &Options{Instance: "test"}
	r := open(t, api, opts)
	s := plain()
	s.Image, s.Ports = imageRuns, []pods.Port{{Private: 80, Protocol: "http"}}
	ensure(t, r, s)
	before := await(t, r, s.PodID, pods.PhaseHealthy)
	get := func() *corev1.Pod {
		p, err := api.CoreV1().Pods(r.opts.namespace(s.Owner)).Get(t.Context(), r.opts.name(s.PodID), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	uid := get().UID
	for range 20 {
		if err := r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		r = open(t, api, opts)
		all, err := r.List(t.Context())
		if err != nil || len(all) != 1 || all[0].Phase != pods.PhaseHealthy || all[0].Gen != s.Gen || all[0].Run != s.Run {
			t.Fatalf("List after a start = %+v, %v, want the pod healthy", all, err)
		}
		ensure(t, r, s) // of the same run
	}
	if after := await(t, r, s.PodID, pods.PhaseHealthy); get().UID != uid || len(after.Ports) != 1 || !after.Started.Truncate(time.Second).Equal(before.Started.Truncate(time.Second)) {
		t.Errorf("state is %+v with Pod %s, was %+v with Pod %s", after, get().UID, before, uid)
	}
}

func TestHostPortsStayOverRunsAndAreFreeAfterRemove(t *testing.T) {
	r := open(t, cluster(t), &Options{Instance: "test", HostPorts: PortRange{30000, 30000}})
	first, second := plain(), plain()
	first.Image, second.Image, second.PodID = imageRuns, imageRuns, "other"
	first.Ports = []pods.Port{{Private: 80, Protocol: "http"}}
	second.Ports = first.Ports
	for range 2 {
		first.Run++
		ensure(t, r, first)
		got := await(t, r, first.PodID, pods.PhaseHealthy)
		if len(got.Ports) != 1 || got.Ports[0].Public != 30000 || got.Ports[0].IP != "192.0.2.1" {
			t.Errorf("ports are %+v, want 30000 of the node", got.Ports)
		}
	}
	ensure(t, r, second)
	await(t, r, second.PodID, pods.PhaseFailed)
	if err := r.Remove(t.Context(), first.PodID, 0); err != nil {
		t.Fatal(err)
	}
	second.Run++
	ensure(t, r, second)
	await(t, r, second.PodID, pods.PhaseHealthy)
}

func TestANamespaceWithoutItsServiceAccountYetIsNoEndOfAPod(t *testing.T) {
	api := cluster(t)
	var tries atomic.Int32
	api.PrependReactor("create", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		if tries.Add(1) > 1 {
			return false, nil, nil
		}
		why := errors.New(`error looking up service account py-x/default: serviceaccount "default" not found`)
		return true, nil, apierrors.NewForbidden(corev1.Resource("pods"), "py-a", why)
	})
	r := open(t, api, &Options{Instance: "test"})
	s := plain()
	s.Image = imageRuns
	ensure(t, r, s)
	await(t, r, s.PodID, pods.PhaseHealthy)
}

func TestANamespaceThatWasDeletedIsMadeAgain(t *testing.T) {
	api := cluster(t)
	r := open(t, api, &Options{Instance: "test"})
	s, other := plain(), plain()
	s.Image, other.Image, other.PodID = imageRuns, imageRuns, "other"
	ensure(t, r, s)
	await(t, r, s.PodID, pods.PhaseHealthy)
	name := r.opts.namespace(s.Owner)
	if err := api.tracker.Delete(corev1.SchemeGroupVersion.WithResource("namespaces"), "", name); err != nil {
		t.Fatal(err)
	}
	api.PrependReactor("create", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		if _, err := api.tracker.Get(corev1.SchemeGroupVersion.WithResource("namespaces"), "", name); err != nil {
			return true, nil, err
		}
		return false, nil, nil
	})
	ensure(t, r, other)
	await(t, r, other.PodID, pods.PhaseHealthy)
}

func TestRemoveWaitsUntilTheClaimsAreGone(t *testing.T) {
	api := cluster(t)
	claims := corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims")
	var looks atomic.Int32
	var doomed atomic.Pointer[string]
	api.PrependReactor("delete", "persistentvolumeclaims", func(a clienttesting.Action) (bool, runtime.Object, error) {
		name := a.(clienttesting.DeleteAction).GetName()
		doomed.Store(&name) // as while the cluster has not seen the end of its Pod
		return true, nil, nil
	})
	api.PrependReactor("list", "persistentvolumeclaims", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if name := doomed.Load(); name != nil && looks.Add(1) == 3 {
			if err := api.tracker.Delete(claims, a.GetNamespace(), *name); err != nil {
				t.Error(err)
			}
		}
		return false, nil, nil
	})
	r := open(t, api, &Options{Instance: "test"})
	s := plain()
	s.Image, s.Mounts = imageRuns, []pods.Mount{{Path: "/workspace", Size: 1}}
	ensure(t, r, s)
	await(t, r, s.PodID, pods.PhaseHealthy)
	if err := r.Remove(t.Context(), s.PodID, 0); err != nil {
		t.Fatal(err)
	}
	if n := looks.Load(); n != 3 {
		t.Errorf("Remove returned after %d looks, want 3, when the claim is gone", n)
	}
}

func TestARecordThatOthersTouchedIsWrittenAllTheSame(t *testing.T) {
	api := cluster(t)
	var conflicts atomic.Int32
	api.PrependReactor("update", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		if conflicts.Add(1) > 1 {
			return false, nil, nil
		}
		return true, nil, apierrors.NewConflict(corev1.Resource("secrets"), "py-a", errors.New("somebody put a label on it"))
	})
	opts := &Options{Instance: "test"}
	r := open(t, api, opts)
	s := plain()
	s.Image = imageRuns
	ensure(t, r, s)
	await(t, r, s.PodID, pods.PhaseHealthy)
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	secret, err := api.CoreV1().Secrets(r.opts.namespace(s.Owner)).Get(t.Context(), r.opts.name(s.PodID), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var rec record
	if err := json.Unmarshal(secret.Data[recordKey], &rec); err != nil || rec.State.Phase != pods.PhaseHealthy {
		t.Errorf("the record has %+v, %v, want healthy", rec.State, err)
	}
}
