package kube

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	corefake "k8s.io/client-go/kubernetes/typed/core/v1/fake"
	networkingv1client "k8s.io/client-go/kubernetes/typed/networking/v1"
	networkingfake "k8s.io/client-go/kubernetes/typed/networking/v1/fake"
	clienttesting "k8s.io/client-go/testing"
)

// The images that the kubelet of these tests knows.
const (
	imageRuns    = "runs"
	imageIgnores = "ignores-stop"
	imageMissing = "missing"
	imageExits   = "exits-"  // and the code
	imagePrints  = "prints-" // and how many lines
	imageNoRoom  = "no-room"
)

// A clientset is what this package uses of that of client-go's package fake, which has all kinds of objects.
type clientset struct {
	clienttesting.Fake
	tracker clienttesting.ObjectTracker
}

func newClientset() *clientset {
	c := &clientset{tracker: clienttesting.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder())}
	c.AddReactor("*", "*", clienttesting.ObjectReaction(c.tracker))
	return c
}

func (c *clientset) CoreV1() corev1client.CoreV1Interface { return &corefake.FakeCoreV1{Fake: &c.Fake} }

func (c *clientset) NetworkingV1() networkingv1client.NetworkingV1Interface {
	return &networkingfake.FakeNetworkingV1{Fake: &c.Fake}
}

// IsWatchListSemanticsUnSupported tells client-go to list before it watches.
func (c *clientset) IsWatchListSemanticsUnSupported() bool { return true }

// An apiServer is a client of one, which tells when somebody watches Pods.
type apiServer struct {
	*clientset
	watches <-chan struct{}
}

// cluster returns a client of an API server without anything behind it but a kubelet, which plays that
// containers start and end at once. Objects have what the fake server does not give them: a UID and a
// time of creation.
func cluster(t *testing.T) *apiServer {
	t.Helper()
	api := newClientset()
	api.PrependReactor("create", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if o, ok := a.(clienttesting.CreateAction).GetObject().(metav1.Object); ok && o.GetUID() == "" {
			o.SetUID(uuid.NewUUID())
			o.SetCreationTimestamp(metav1.Now())
		}
		return false, nil, nil
	})
	// The fake server forgets what is deleted between a List and the Watch after it, so open waits for that.
	watches := make(chan struct{}, 100)
	api.PrependReactor("get", "pods/log", func(a clienttesting.Action) (bool, runtime.Object, error) {
		list, err := api.tracker.List(a.GetResource(), corev1.SchemeGroupVersion.WithKind("Pod"), a.GetNamespace())
		if err != nil {
			return true, nil, err
		}
		return true, &runtime.Unknown{Raw: printed(t, list.(*corev1.PodList).Items)}, nil
	})
	api.AddWatchReactor("*", func(a clienttesting.Action) (bool, watch.Interface, error) {
		w, err := api.tracker.Watch(a.GetResource(), a.GetNamespace())
		return true, w, err
	})
	api.PrependWatchReactor("pods", func(a clienttesting.Action) (bool, watch.Interface, error) {
		w, err := api.tracker.Watch(a.GetResource(), a.GetNamespace())
		watches <- struct{}{}
		return true, w, err
	})
	ctx, end := context.WithCancel(t.Context())
	w, err := api.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range w.ResultChan() {
			if p, ok := e.Object.(*corev1.Pod); ok && e.Type != "DELETED" {
				play(ctx, t, api, p.DeepCopy())
			}
		}
	}()
	t.Cleanup(func() { w.Stop(); end(); <-done })
	<-watches // the kubelet's
	return &apiServer{api, watches}
}

// play sets what a kubelet would say of a Pod.
func play(ctx context.Context, t *testing.T, api *clientset, p *corev1.Pod) {
	image, phase := p.Spec.Containers[0].Image, p.Status.Phase
	switch code, exits := strings.CutPrefix(image, imageExits); {
	case phase == corev1.PodSucceeded || phase == corev1.PodFailed:
		return
	case phase == "" && image == imageNoRoom:
		p.Status.Phase = corev1.PodPending
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/1 nodes are available"}}
	case phase == "" && image == imageMissing:
		p.Spec.NodeName = "node"
		p.Status.Phase = corev1.PodPending
		setContainer(p, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "missing: not found"}})
	case phase == "" && exits:
		p.Spec.NodeName = "node"
		n, err := strconv.Atoi(code)
		if err != nil {
			t.Error(err)
		}
		terminate(p, int32(n), "Error")
	case phase == "":
		p.Spec.NodeName = "node"
		p.Status.Phase, p.Status.PodIP, p.Status.HostIP = corev1.PodRunning, "10.1.2.3", "192.0.2.1"
		setContainer(p, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}})
		p.Status.ContainerStatuses[0].Ready = true
	case p.Spec.ActiveDeadlineSeconds != nil:
		code := int32(143)
		if image == imageIgnores {
			code = codeKilled
		}
		terminate(p, code, "Error")
		p.Status.Reason = deadlineExceeded
	default:
		return
	}
	if _, err := api.CoreV1().Pods(p.Namespace).Update(ctx, p, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
		t.Errorf("the kubelet of the test: %v", err)
	}
}

// printed is the log of the Pod that prints: the fake server does not tell whose was asked for.
func printed(t *testing.T, list []corev1.Pod) []byte {
	var log []byte
	for i := range list {
		count, prints := strings.CutPrefix(list[i].Spec.Containers[0].Image, imagePrints)
		c := status(&list[i])
		if !prints || c == nil {
			continue
		}
		n, err := strconv.Atoi(count)
		if err != nil {
			t.Error(err)
		}
		at := list[i].CreationTimestamp.Time
		for line := range n {
			log = fmt.Appendf(log, "%s line %d\n", at.Add(time.Duration(line)*time.Microsecond).UTC().Format(time.RFC3339Nano), line+1)
		}
	}
	return log
}

func terminate(p *corev1.Pod, code int32, reason string) {
	p.Status.Phase = corev1.PodFailed
	if code == 0 {
		p.Status.Phase, reason = corev1.PodSucceeded, "Completed"
	}
	setContainer(p, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason}})
}

func setContainer(p *corev1.Pod, s corev1.ContainerState) {
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: container, State: s}}
}

func open(t *testing.T, api *apiServer, opts *Options) *Runtime {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for len(api.watches) > 0 {
		<-api.watches // of an earlier Runtime
	}
	r, err := Open(ctx, api.clientset, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close(context.WithoutCancel(t.Context())) })
	select {
	case <-api.watches:
	case <-ctx.Done():
		t.Fatal("the runtime does not watch Pods")
	}
	return r
}
