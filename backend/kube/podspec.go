package kube

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podyard/podyard/internal/podhost"
	"github.com/podyard/podyard/pods"
)

const shmVolume = "shm"

// podObject is the Pod of a run. Its environment is in the Secret: see secretObject. The error is for
// the owner of the pod.
func (o *Options) podObject(s *pods.Spec, ports []podhost.Port) (*corev1.Pod, error) {
	if err := supported(s); err != nil {
		return nil, err
	}
	user, err := securityContext(s.User)
	if err != nil {
		return nil, err
	}
	no := false
	grace := int64(math.Ceil(o.Grace.Seconds()))
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: o.name(s.PodID), Namespace: o.namespace(s.Owner),
			Labels: o.runLabels(s), Annotations: ids(s.PodID, s.Owner),
		},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			AutomountServiceAccountToken:  &no,
			EnableServiceLinks:            &no,
			TerminationGracePeriodSeconds: &grace,
			SecurityContext:               &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			NodeSelector:                  maps.Clone(o.Nodes),
			Tolerations:                   slices.Clone(o.Tolerations),
			Containers: []corev1.Container{{
				Name: container, Image: s.Image, ImagePullPolicy: pullPolicy(s),
				Command: literal(s.Entrypoint), Args: literal(s.Args),
				Env: o.env(s), Ports: o.containerPorts(s, ports),
				Resources: o.resources(s), SecurityContext: user,
			}},
		},
	}
	if o.RuntimeClass != "" {
		p.Spec.RuntimeClassName = &o.RuntimeClass
	}
	if hasCredential(s) {
		p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: o.pullName(s.PodID)}}
	}
	o.placeGPUs(&p.Spec, s)
	addShm(&p.Spec, s)
	o.addMounts(&p.Spec, s)
	return p, nil
}

// supported returns why s cannot run on this runtime.
func supported(s *pods.Spec) error {
	if len(s.Devices) > 0 {
		return errors.New("this host counts its GPUs and has none by name")
	}
	for _, m := range s.Mounts {
		if m.VolumeID != "" {
			return errors.New("this host has no network volumes")
		}
	}
	return nil
}

// literal protects words from the kubelet, which replaces $(NAME) in them.
func literal(words []string) []string {
	var list []string
	for _, w := range words {
		list = append(list, strings.ReplaceAll(w, "$", "$$"))
	}
	return list
}

func hasCredential(s *pods.Spec) bool {
	return s.Credential.Username != "" || s.Credential.Password != ""
}

// pullPolicy is Always for private images: a node gives an image that it has to every Pod that asks
// for it, whoever pulled it.
func pullPolicy(s *pods.Spec) corev1.PullPolicy {
	if s.AlwaysPull || hasCredential(s) {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

// noGPU hides the GPUs of a node from images that would get all of them. Nobody chooses its value: the
// kubelet lets that of a Pod win over that of the device plugin.
var noGPU = corev1.EnvVar{Name: "NVIDIA_VISIBLE_DEVICES", Value: "void"}

// env names the variables of s, whose values are in the Secret. The kubelet does not replace $(NAME) in
// values from there.
func (o *Options) env(s *pods.Spec) []corev1.EnvVar {
	var list []corev1.EnvVar
	for i, name := range envNames(s) {
		if name == noGPU.Name {
			continue
		}
		list = append(list, corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: o.name(s.PodID)}, Key: envKey(s, i),
		}}})
	}
	if len(s.Ports) > 0 {
		field := "status.podIP"
		if !o.HostPorts.empty() && !s.LocalPorts {
			field = "status.hostIP"
		}
		list = append(list, corev1.EnvVar{Name: "RUNPOD_PUBLIC_IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: field}}})
	}
	if s.GPUs == 0 {
		list = append(list, noGPU)
	}
	return list
}

// envNames are the variables of s in the order of their keys in the Secret.
func envNames(s *pods.Spec) []string {
	names := slices.Collect(maps.Keys(s.Env))
	for name := range s.PortEnv {
		names = append(names, name)
	}
	for _, p := range s.Ports {
		names = append(names, portVariable(p))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// envKey is the key of a variable. It has a number, because names may have characters that keys may not. Each
// run has keys of its own: a kubelet that still has the Secret of the run before waits, and does not start
// the container with those values.
func envKey(s *pods.Spec, i int) string { return fmt.Sprintf("env-%d-%d-%d", s.Gen, s.Run, i) }

func (o *Options) resources(s *pods.Spec) corev1.ResourceRequirements {
	list := corev1.ResourceList{}
	add := func(name corev1.ResourceName, n int, unit string) {
		if n > 0 {
			list[name] = resource.MustParse(strconv.Itoa(n) + unit)
		}
	}
	add(corev1.ResourceCPU, s.VCPU, "")
	add(corev1.ResourceMemory, s.Memory, "Gi")
	add(corev1.ResourceEphemeralStorage, s.Disk, "Gi")
	add(o.GPUResource, s.GPUs, "")
	return corev1.ResourceRequirements{Requests: list, Limits: maps.Clone(list)}
}

const gpuProductLabel = "nvidia.com/gpu.product"

func (o *Options) placeGPUs(spec *corev1.PodSpec, s *pods.Spec) {
	if s.GPUs == 0 {
		return
	}
	spec.Tolerations = append(spec.Tolerations, corev1.Toleration{Key: string(o.GPUResource), Operator: corev1.TolerationOpExists})
	products := o.GPUProducts[s.GPUType]
	if len(products) == 0 {
		return
	}
	spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: gpuProductLabel, Operator: corev1.NodeSelectorOpIn, Values: slices.Clone(products)}},
		}}},
	}}
}

// addShm makes /dev/shm as large as s asks. What is in it counts as memory of the container.
func addShm(spec *corev1.PodSpec, s *pods.Spec) {
	mb := s.ShmSize
	if mb == 0 {
		mb = s.Memory * 1024 / 2
	}
	if mb == 0 {
		return
	}
	size := resource.MustParse(strconv.Itoa(mb) + "Mi")
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: shmVolume, VolumeSource: corev1.VolumeSource{
		EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: &size},
	}})
	c := &spec.Containers[0]
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: shmVolume, MountPath: "/dev/shm"})
}

func (o *Options) addMounts(spec *corev1.PodSpec, s *pods.Spec) {
	c := &spec.Containers[0]
	for _, m := range s.Mounts {
		name := "mount-" + hash(m.Path)
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: o.claimName(s.PodID, m)},
		}})
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: m.Path})
	}
}

// securityContext is for a user uid or uid:gid. The kubelet does not look names up in an image.
func securityContext(user string) (*corev1.SecurityContext, error) {
	if user == "" {
		return nil, nil
	}
	c := &corev1.SecurityContext{}
	uid, gid, hasGroup := strings.Cut(user, ":")
	n, err := strconv.ParseUint(uid, 10, 31)
	if err != nil {
		return nil, errUser
	}
	c.RunAsUser = new(int64)
	*c.RunAsUser = int64(n)
	if !hasGroup {
		return c, nil
	}
	if n, err = strconv.ParseUint(gid, 10, 31); err != nil {
		return nil, errUser
	}
	c.RunAsGroup = new(int64)
	*c.RunAsGroup = int64(n)
	return c, nil
}

var errUser = errors.New("user must be a number, or two with a colon between them: this host does not know the names of an image")

// seconds rounds a grace up. 0 would be a kill without waiting for it.
func seconds(grace time.Duration) *int64 {
	n := max(1, int64(math.Ceil(min(grace, 24*time.Hour).Seconds())))
	return &n
}

func parseLabel(labels map[string]string, name string) (uint64, error) {
	n, err := strconv.ParseUint(labels[name], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("label %s: %w", name, err)
	}
	return n, nil
}
