package kube

import (
	"crypto/sha256"
	"encoding/base32"
	"strconv"
	"strings"

	"github.com/podyard/podyard/pods"
)

// Labels of every object. Ids of pods and owners may have characters and lengths that labels may
// not, so labels have hashes of them, and annotations the ids themselves.
const (
	labelInstance = "podyard.io/instance"
	labelPod      = "podyard.io/pod"
	labelOwner    = "podyard.io/owner"
	labelGen      = "podyard.io/gen"
	labelRun      = "podyard.io/run"

	annotationPod   = "podyard.io/pod-id"
	annotationOwner = "podyard.io/owner-id"
)

// container is the name of the only container of a Pod.
const container = "pod"

var lowercase = base32.StdEncoding.WithPadding(base32.NoPadding)

// hash is a name for parts that fits into every name and label of Kubernetes. Different parts have
// different hashes.
func hash(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write([]byte(strconv.Itoa(len(p)) + ":" + p))
	}
	return strings.ToLower(lowercase.EncodeToString(h.Sum(nil)[:15]))
}

// namespace is where the objects of an owner are.
func (o *Options) namespace(owner string) string {
	if o.Namespace != "" {
		return o.Namespace
	}
	return "py-" + hash(o.Instance, owner)
}

// name is that of the Pod and of the Secret of a pod, in all its generations and runs. So the API
// server does not allow two containers of a pod.
func (o *Options) name(podID string) string { return "py-" + hash(o.Instance, podID) }

func (o *Options) ownerLabels(owner string) map[string]string {
	return map[string]string{labelInstance: o.Instance, labelOwner: hash(o.Instance, owner)}
}

func (o *Options) podLabels(podID, owner string) map[string]string {
	l := o.ownerLabels(owner)
	l[labelPod] = hash(o.Instance, podID)
	return l
}

func ids(podID, owner string) map[string]string {
	return map[string]string{annotationPod: podID, annotationOwner: owner}
}

func (o *Options) runLabels(s *pods.Spec) map[string]string {
	l := o.podLabels(s.PodID, s.Owner)
	l[labelGen], l[labelRun] = strconv.FormatUint(s.Gen, 10), strconv.FormatUint(s.Run, 10)
	return l
}
