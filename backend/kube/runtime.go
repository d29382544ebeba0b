package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	networkingv1client "k8s.io/client-go/kubernetes/typed/networking/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/podyard/podyard/internal/podhost"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem"
)

// ErrClosed is the error of calls after Close.
var ErrClosed = errors.New("kube: runtime is closed")

// A Client is a client of an API server. kubernetes.Interface is one: a program has that of
// kubernetes.NewForConfig. This package does not import it, because it has all kinds of objects there are.
type Client interface {
	CoreV1() corev1client.CoreV1Interface
	NetworkingV1() networkingv1client.NetworkingV1Interface
}

// A Runtime runs pods on one pool of nodes of a cluster. It is safe for concurrent use.
type Runtime struct {
	opts  Options
	api   Client
	hub   podhost.Hub
	ports podhost.PortAllocator
	work  sync.WaitGroup
	// lifetime gives f a context that Close cancels.
	lifetime func(f func(ctx context.Context)) func()
	end      context.CancelFunc
	pods     podhost.Table[*pod]
	listed   chan struct{} // closed when the Pods that Open found were shown; no pod takes a step before

	homing sync.Mutex      // held while the objects of an owner are written
	homes  map[string]bool // owners whose objects were written, guarded by homing
}

var (
	_ pods.Runtime   = (*Runtime)(nil)
	_ pods.Admitter  = (*Runtime)(nil)
	_ pods.LogReader = (*Runtime)(nil)
)

// Open returns a Runtime on a cluster, with the pods that an earlier one of the same Instance left. The
// API server must answer within ctx. The client should have no limit of its own on requests: QPS -1.
func Open(ctx context.Context, api Client, opts *Options) (*Runtime, error) {
	if err := opts.check(); err != nil {
		return nil, fmt.Errorf("kube: open: %w", err)
	}
	r := &Runtime{opts: opts.withDefaults(), api: api, homes: map[string]bool{}, listed: make(chan struct{})}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	r.end = end
	r.lifetime = func(f func(ctx context.Context)) func() { return func() { f(life) } }
	if err := r.readRecords(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("kube: open: %w", err), r.Close(ctx))
	}
	if err := r.watchPods(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("kube: open: %w", err), r.Close(ctx))
	}
	return r, nil
}

func (r *Runtime) mine() metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: labelInstance + "=" + r.opts.Instance}
}

// readRecords restores the pods of an earlier Runtime from their Secrets.
func (r *Runtime) readRecords(ctx context.Context) error {
	list, err := r.api.CoreV1().Secrets(r.opts.Namespace).List(ctx, r.mine())
	if err != nil {
		return err
	}
	for i := range list.Items {
		s := &list.Items[i]
		if s.Type != recordType {
			continue
		}
		var rec record
		if err := json.Unmarshal(s.Data[recordKey], &rec); err != nil || rec.State.PodID == "" {
			r.opts.Logger.Warn("kube: the record of a pod cannot be read", "pod", s.Annotations[annotationPod], "err", err)
			continue
		}
		for _, p := range rec.Ports {
			r.ports.Reserve(p.UDP, p.Public)
		}
		r.pods.Made(rec.State.PodID, r.newPod).restore(s, &rec)
	}
	return nil
}

// watchPods returns when all Pods there are were seen, and goes on.
func (r *Runtime) watchPods(ctx context.Context) error {
	informer := cache.NewSharedInformer(r.listWatch(), &corev1.Pod{}, 0)
	shown, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { r.see(o, false) },
		UpdateFunc: func(_, o any) { r.see(o, false) },
		DeleteFunc: func(o any) { r.see(o, true) },
	})
	if err != nil {
		return err
	}
	r.work.Go(r.lifetime(informer.RunWithContext))
	if !cache.WaitForCacheSync(ctx.Done(), shown.HasSynced) {
		return errors.Join(errors.New("the pods of the cluster were not listed"), ctx.Err())
	}
	close(r.listed)
	return nil
}

func (r *Runtime) listWatch() cache.ListerWatcher {
	api := r.api.CoreV1().Pods(r.opts.Namespace)
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = r.mine().LabelSelector
			return api.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = r.mine().LabelSelector
			return api.Watch(ctx, o)
		},
	}, r.api)
}

// see hands what the cluster shows of a Pod to its pod.
func (r *Runtime) see(o any, gone bool) {
	if tomb, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = tomb.Obj
	}
	obj, ok := o.(*corev1.Pod)
	if !ok || obj.Annotations[annotationPod] == "" {
		return
	}
	id := obj.Annotations[annotationPod]
	if gone {
		if p := r.pods.Find(id); p != nil {
			p.vanish(obj)
		}
		return
	}
	r.pods.Made(id, r.newPod).show(obj)
}

// Capabilities implements pods.Runtime.
func (r *Runtime) Capabilities() pods.Capabilities {
	return pods.Capabilities{GPUs: true, DiskLimit: true, Pull: true}
}

// Admit implements pods.Admitter.
func (r *Runtime) Admit(s pods.Spec, faults *problem.Violations) {
	if _, err := securityContext(s.User); err != nil {
		faults.Add(problem.BadRequest, "/podyard/user", "%s", err.Error())
	}
}

// Ensure implements pods.Runtime.
func (r *Runtime) Ensure(_ context.Context, s pods.Spec) error {
	if err := r.pods.Ensure(s.PodID, r.newPod, func(p *pod) error { return p.ensure(&s) }); err != nil {
		return fmt.Errorf("kube: ensure %q: %w", s.PodID, err)
	}
	return nil
}

// Stop implements pods.Runtime. The program has Options.Grace to end, whatever grace says: the kubelet
// reads that when the container is made.
func (r *Runtime) Stop(_ context.Context, podID string, _ time.Duration) error {
	if _, err := r.pods.Call(podID, (*pod).stop); err != nil {
		return fmt.Errorf("kube: stop %q: %w", podID, err)
	}
	return nil
}

// Remove implements pods.Runtime. If ctx ends first, it returns ctx's error, and the removal continues.
// A grace that is shorter than that of an earlier call has no effect.
func (r *Runtime) Remove(ctx context.Context, podID string, grace time.Duration) error {
	var removed <-chan struct{}
	found, err := r.pods.Call(podID, func(p *pod) { removed = p.remove(grace) })
	if found {
		select {
		case <-removed:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if err == nil && found {
		err = r.pods.Closed()
	}
	if err != nil {
		return fmt.Errorf("kube: remove %q: %w", podID, err)
	}
	return nil
}

// List implements pods.Runtime.
func (r *Runtime) List(context.Context) ([]pods.ContainerState, error) {
	if err := r.pods.Closed(); err != nil {
		return nil, fmt.Errorf("kube: list: %w", err)
	}
	var states []pods.ContainerState
	for _, p := range r.pods.All() {
		if s, ok := p.current(); ok {
			states = append(states, s)
		}
	}
	return states, nil
}

// Watch implements pods.Runtime.
func (r *Runtime) Watch(ctx context.Context, f func(pods.ContainerState)) error {
	return fmt.Errorf("kube: watch: %w", r.hub.Watch(ctx, f))
}

// Close leaves the Pods as they are: the next Open has them. It ends requests that are under way and waits for
// all goroutines, whatever ctx. A second Close does nothing.
func (r *Runtime) Close(context.Context) error {
	if !r.pods.Close(ErrClosed) {
		return nil
	}
	r.end()
	r.work.Wait()
	r.hub.Close(ErrClosed)
	return nil
}
