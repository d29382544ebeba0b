package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podyard/podyard/internal/podhost"
	"github.com/podyard/podyard/pods"
)

// start makes the objects of a run, the Pod last. What the API server refuses for good is the end of the run.
func (p *pod) start(ctx context.Context, v *view) error {
	s := v.wish.spec
	err := p.make(ctx, s, v.state)
	if err == nil {
		return nil
	}
	var refused *refusedError
	if !errors.As(err, &refused) {
		return err
	}
	failed := v.state
	failed.Phase, failed.Reason, failed.At = pods.PhaseFailed, refused.reason, time.Now()
	p.publish(ctx, failed)
	return nil
}

// A refusedError is an error that a repetition does not mend. Its reason is for the owner of the pod.
type refusedError struct{ reason string }

func (e *refusedError) Error() string { return e.reason }

// refusal makes an error of the API server a refusedError if it is one. A new namespace has no service account
// for a moment, which the API server forbids, too.
func refusal(err error) error {
	if apierrors.IsForbidden(err) && strings.Contains(err.Error(), "error looking up service account") || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return err
	}
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) {
		return &refusedError{"the cluster does not take it: " + err.Error()}
	}
	return err
}

func (p *pod) make(ctx context.Context, s *pods.Spec, state pods.ContainerState) error {
	ports, err := p.r.allocate(s, p.rec.Ports)
	p.rec = record{State: state, Want: s.Ports, Ports: ports}
	if err != nil {
		return &refusedError{err.Error()}
	}
	obj, err := p.r.opts.podObject(s, ports)
	if err != nil {
		return &refusedError{err.Error()}
	}
	if err := p.r.home(ctx, s.Owner); err != nil {
		return fmt.Errorf("namespace: %w", refusal(err))
	}
	secret, err := p.r.opts.secretObject(s, &p.rec)
	if err != nil {
		return err
	}
	if err := p.writeSecret(ctx, secret); err != nil {
		p.r.leave(s.Owner) // the namespace may be gone
		return fmt.Errorf("record: %w", refusal(err))
	}
	if err := p.makeOthers(ctx, s); err != nil {
		return refusal(err)
	}
	return p.makePod(ctx, obj)
}

// makeOthers writes the credential and the volumes of s.
func (p *pod) makeOthers(ctx context.Context, s *pods.Spec) error {
	owner := ownerReference(p.secret)
	pull, err := p.r.opts.pullObject(s, owner)
	if err != nil {
		return err
	}
	if pull != nil {
		if err := p.r.putSecret(ctx, pull); err != nil {
			return fmt.Errorf("credential: %w", err)
		}
	}
	for _, c := range p.r.opts.claimObjects(s, owner) {
		_, err := p.r.api.CoreV1().PersistentVolumeClaims(c.Namespace).Create(ctx, c, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("volume: %w", err)
		}
	}
	return nil
}

// makePod creates the Pod. It never updates one: an update would bring back what was just deleted.
func (p *pod) makePod(ctx context.Context, obj *corev1.Pod) error {
	api := p.r.api.CoreV1().Pods(obj.Namespace)
	got, err := api.Create(ctx, obj, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) { // of another run, or of a Create whose answer was lost
		got, err = api.Get(ctx, obj.Name, metav1.GetOptions{})
	}
	if err != nil {
		return fmt.Errorf("pod: %w", refusal(err))
	}
	if keyOfPod(got) == keyOfPod(obj) {
		p.made = keyOfPod(obj)
	}
	p.created(got)
	return nil
}

func (r *Runtime) putSecret(ctx context.Context, s *corev1.Secret) error {
	api := r.api.CoreV1().Secrets(s.Namespace)
	_, err := api.Create(ctx, s, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = api.Update(ctx, s, metav1.UpdateOptions{})
	}
	return err
}

// errTaken is the error of a write of a record that another server has written.
var errTaken = errors.New("another server has a later run of this pod")

// writeSecret writes the record of p. Its resourceVersion is a fence: a server that was paused does not
// undo what another has written since.
func (p *pod) writeSecret(ctx context.Context, s *corev1.Secret) error {
	api := p.r.api.CoreV1().Secrets(s.Namespace)
	var got *corev1.Secret
	var err error
	if p.secret == nil {
		got, err = api.Create(ctx, s, metav1.CreateOptions{})
	} else {
		s.ResourceVersion, s.UID = p.secret.ResourceVersion, p.secret.UID
		got, err = api.Update(ctx, s, metav1.UpdateOptions{})
	}
	switch {
	case apierrors.IsAlreadyExists(err), apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return errors.Join(err, p.readSecret(ctx, s.Namespace, s.Name))
	case err != nil:
		return err
	}
	p.secret = got
	return nil
}

// readSecret reads the record again, so that the next write can succeed, unless that is of a later run.
func (p *pod) readSecret(ctx context.Context, namespace, name string) error {
	got, err := p.r.api.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		p.secret = nil
		return nil
	}
	if err != nil {
		return err
	}
	var rec record
	if err := json.Unmarshal(got.Data[recordKey], &rec); err == nil {
		if k, mine := keyOf(&rec.State), keyOf(&p.rec.State); k.gen > mine.gen || k.gen == mine.gen && k.run > mine.run {
			return errTaken
		}
	}
	p.secret = got
	return nil
}

// keep writes a state into the record. A failure is logged and no fault of the pod: its Pod has the state,
// too, as long as it is there.
func (p *pod) keep(ctx context.Context, s pods.ContainerState) {
	p.rec.State = s
	err := p.writeRecord(ctx)
	if apierrors.IsConflict(err) && !errors.Is(err, errTaken) { // others have changed the Secret, such as a label
		err = p.writeRecord(ctx)
	}
	if err != nil && ctx.Err() == nil {
		p.r.opts.Logger.Warn("kube: the record of a pod cannot be written", "pod", p.id, "err", err)
	}
}

func (p *pod) writeRecord(ctx context.Context) error {
	if p.secret == nil {
		return nil
	}
	b, err := json.Marshal(&p.rec)
	if err != nil {
		return err
	}
	next := p.secret.DeepCopy()
	next.Data[recordKey] = b
	return p.writeSecret(ctx, next)
}

// setDeadline asks the kubelet to end a Pod and to keep what it was.
func (p *pod) setDeadline(ctx context.Context, obj *corev1.Pod) error {
	_, err := p.r.api.CoreV1().Pods(obj.Namespace).Patch(ctx, obj.Name, patchType, []byte(deadlinePatch), metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("stop: %w", err)
	}
	return nil
}

// deletePod asks for the end of a Pod, with a grace, and never by force. The watch tells when it is gone.
func (p *pod) deletePod(ctx context.Context, obj *corev1.Pod, grace time.Duration) error {
	if obj.DeletionTimestamp != nil {
		return nil
	}
	err := p.r.api.CoreV1().Pods(obj.Namespace).Delete(ctx, obj.Name, metav1.DeleteOptions{
		GracePeriodSeconds: seconds(grace), Preconditions: &metav1.Preconditions{UID: &obj.UID},
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete: %w", err)
	}
	return nil
}

// erase removes everything of the pod, the Secret last: it is how a next server knows of the rest.
func (p *pod) erase(ctx context.Context, v *view) (again time.Duration, done bool, err error) {
	if v.seen != nil {
		return 0, false, p.deletePod(ctx, v.seen, v.wish.grace)
	}
	namespace, name := p.place(v)
	if namespace == "" {
		return 0, p.forget(), nil
	}
	core := p.r.api.CoreV1()
	switch obj, err := core.Pods(namespace).Get(ctx, name, metav1.GetOptions{}); {
	case err == nil: // the watch has not shown it yet
		p.created(obj)
		return 0, false, p.deletePod(ctx, obj, v.wish.grace)
	case !apierrors.IsNotFound(err):
		return 0, false, err
	}
	// A claim goes when the cluster has seen that no Pod uses it. Until then a pod of the same id would get it.
	if left, err := p.eraseClaims(ctx, namespace); left || err != nil {
		return claimInterval, false, err
	}
	for _, secret := range []string{name + "-pull", name} {
		if err := core.Secrets(namespace).Delete(ctx, secret, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return 0, false, err
		}
	}
	return 0, p.forget(), nil
}

// claimInterval is the time between two looks whether the claims of a pod are gone.
const claimInterval = 200 * time.Millisecond

// place is where the objects of the pod are; empty if none was made.
func (p *pod) place(v *view) (namespace, name string) {
	switch {
	case p.secret != nil:
		return p.secret.Namespace, p.secret.Name
	case v.last != nil:
		return v.last.Namespace, v.last.Name
	case v.wish.spec != nil: // a write whose answer was lost
		return p.r.opts.namespace(v.wish.spec.Owner), p.r.opts.name(p.id)
	}
	return "", ""
}

// eraseClaims reports whether there were some.
func (p *pod) eraseClaims(ctx context.Context, namespace string) (left bool, err error) {
	api := p.r.api.CoreV1().PersistentVolumeClaims(namespace)
	opts := p.r.mine()
	opts.LabelSelector += "," + labelPod + "=" + hash(p.r.opts.Instance, p.id)
	list, err := api.List(ctx, opts)
	if err != nil {
		return false, err
	}
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp != nil {
			continue
		}
		if err := api.Delete(ctx, list.Items[i].Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return false, err
		}
	}
	return len(list.Items) > 0, nil
}

// forget ends p. From now on its id is free.
func (p *pod) forget() bool {
	p.r.ports.Release(p.rec.Ports)
	p.rec.Ports = []podhost.Port(nil)
	p.r.pods.Forget(p.id, p)
	return true
}

// home makes the namespace of an owner and what bounds it.
func (r *Runtime) home(ctx context.Context, owner string) error {
	r.homing.Lock()
	defer r.homing.Unlock()
	if r.homes[owner] {
		return nil
	}
	if err := r.makeHome(ctx, owner); err != nil {
		return err
	}
	r.homes[owner] = true
	return nil
}

// leave forgets that the objects of an owner are there.
func (r *Runtime) leave(owner string) {
	r.homing.Lock()
	defer r.homing.Unlock()
	delete(r.homes, owner)
}

func (r *Runtime) makeHome(ctx context.Context, owner string) error {
	there := func(err error) error {
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	}
	if r.opts.Namespace == "" {
		_, err := r.api.CoreV1().Namespaces().Create(ctx, r.opts.namespaceObject(owner), metav1.CreateOptions{})
		if there(err) != nil {
			return err
		}
		if q := r.opts.quotaObject(owner); q != nil {
			if _, err := r.api.CoreV1().ResourceQuotas(q.Namespace).Create(ctx, q, metav1.CreateOptions{}); there(err) != nil {
				return err
			}
		}
	}
	for _, n := range r.opts.policyObjects(owner) {
		if _, err := r.api.NetworkingV1().NetworkPolicies(n.Namespace).Create(ctx, n, metav1.CreateOptions{}); there(err) != nil {
			return err
		}
	}
	return nil
}
