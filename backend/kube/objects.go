package kube

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/podyard/podyard/internal/podhost"
	"github.com/podyard/podyard/pods"
)

// A record is what the Runtime knows of a pod besides its objects. It is in the pod's Secret.
type record struct {
	State pods.ContainerState `json:"state"`           // the last one that was kept
	Want  []pods.Port         `json:"want,omitempty"`  // Spec.Ports
	Ports []podhost.Port      `json:"ports,omitempty"` // host ports, kept over runs and generations
}

const (
	recordType = "podyard.io/pod"
	recordKey  = "record"
)

// secretObject is the Secret of a pod: its record and its environment. It owns the pod's other objects.
func (o *Options) secretObject(s *pods.Spec, rec *record) (*corev1.Secret, error) {
	b, err := json.Marshal(rec)
	if err != nil {
		return nil, err
	}
	data := map[string][]byte{recordKey: b}
	for i, name := range envNames(s) {
		data[envKey(s, i)] = []byte(variable(s, name, rec.Ports))
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: o.name(s.PodID), Namespace: o.namespace(s.Owner),
			Labels: o.podLabels(s.PodID, s.Owner), Annotations: ids(s.PodID, s.Owner),
		},
		Type: recordType, Data: data,
	}, nil
}

// variable is the value of a variable of s.
func variable(s *pods.Spec, name string, ports []podhost.Port) string {
	for _, p := range s.Ports {
		if name == portVariable(p) {
			return strconv.Itoa(cmp.Or(publicOf(p, ports), inside(p, ports)))
		}
	}
	private, ok := s.PortEnv[name]
	if !ok {
		return s.Env[name]
	}
	for _, p := range s.Ports {
		if p.Private == private {
			return strconv.Itoa(inside(p, ports))
		}
	}
	return strconv.Itoa(private)
}

func (o *Options) pullName(podID string) string { return o.name(podID) + "-pull" }

// pullObject is the Secret with which the kubelet logs in to the registry of the image of s; nil without
// a credential.
func (o *Options) pullObject(s *pods.Spec, owner metav1.OwnerReference) (*corev1.Secret, error) {
	if !hasCredential(s) {
		return nil, nil
	}
	c := s.Credential
	login := map[string]string{
		"username": c.Username, "password": string(c.Password),
		"auth": base64.StdEncoding.EncodeToString([]byte(c.Username + ":" + string(c.Password))),
	}
	b, err := json.Marshal(map[string]any{"auths": map[string]any{registryKey(s): login}})
	if err != nil {
		return nil, err
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: o.pullName(s.PodID), Namespace: o.namespace(s.Owner), Labels: o.podLabels(s.PodID, s.Owner),
			Annotations: ids(s.PodID, s.Owner), OwnerReferences: []metav1.OwnerReference{owner},
		},
		Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: b},
	}, nil
}

// dockerHub is how the kubelet finds the credential of images that name no registry.
const dockerHub = "https://index.docker.io/v1/"

func registryKey(s *pods.Spec) string {
	host := s.Credential.Registry
	if host == "" {
		first, _, more := strings.Cut(s.Image, "/")
		if more && (strings.ContainsAny(first, ".:") || first == "localhost") {
			host = first
		}
	}
	if host == "" || host == "docker.io" || host == "index.docker.io" {
		return dockerHub
	}
	return host
}

func ownerReference(s *corev1.Secret) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: s.Name, UID: s.UID}
}

func (o *Options) claimName(podID string, m pods.Mount) string {
	return o.name(podID) + "-" + hash(m.Path)
}

// claimObjects are the volumes of the persistent mounts of s. They stay over generations.
func (o *Options) claimObjects(s *pods.Spec, owner metav1.OwnerReference) []*corev1.PersistentVolumeClaim {
	var list []*corev1.PersistentVolumeClaim
	for _, m := range s.Mounts {
		c := &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{
				Name: o.claimName(s.PodID, m), Namespace: o.namespace(s.Owner), Labels: o.podLabels(s.PodID, s.Owner),
				Annotations: ids(s.PodID, s.Owner), OwnerReferences: []metav1.OwnerReference{owner},
			},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceStorage: resource.MustParse(strconv.Itoa(max(1, m.Size)) + "Gi"),
				}},
			},
		}
		if o.StorageClass != "" {
			c.Spec.StorageClassName = &o.StorageClass
		}
		list = append(list, c)
	}
	return list
}

// namespaceObject is the namespace of an owner.
func (o *Options) namespaceObject(owner string) *corev1.Namespace {
	labels := o.ownerLabels(owner)
	labels["pod-security.kubernetes.io/enforce"] = o.PodSecurity
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: o.namespace(owner), Labels: labels, Annotations: map[string]string{annotationOwner: owner},
	}}
}

// quotaObject bounds what an owner may have in the cluster; nil without a quota.
func (o *Options) quotaObject(owner string) *corev1.ResourceQuota {
	if len(o.Quota) == 0 {
		return nil
	}
	return &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "podyard", Namespace: o.namespace(owner), Labels: o.ownerLabels(owner)},
		Spec:       corev1.ResourceQuotaSpec{Hard: o.Quota.DeepCopy()},
	}
}

// unreachable are addresses that no pod of a user may reach: other pods, nodes and services have private
// ones, and the metadata of clouds has a link-local one.
var unreachable = []string{"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16"}

const dnsPort = 53

// policyObjects let nothing in but what is published, and out to the internet and the names of the
// cluster. They work only where the network of the cluster enforces policies.
func (o *Options) policyObjects(owner string) []*networkingv1.NetworkPolicy {
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Namespace: o.namespace(owner), Labels: o.ownerLabels(owner)}
	}
	mine := metav1.LabelSelector{MatchLabels: o.ownerLabels(owner)}
	list := []*networkingv1.NetworkPolicy{{
		ObjectMeta: meta("podyard-deny-" + hash(owner)),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: mine, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
		},
	}, {
		ObjectMeta: meta("podyard-internet-" + hash(owner)),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: mine, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
			Egress: []networkingv1.NetworkPolicyEgressRule{
				{To: []networkingv1.NetworkPolicyPeer{
					{IPBlock: &networkingv1.IPBlock{CIDR: "0.0.0.0/0", Except: unreachable}},
					{IPBlock: &networkingv1.IPBlock{CIDR: "::/0", Except: []string{"fc00::/7", "fe80::/10"}}},
				}},
				{To: []networkingv1.NetworkPolicyPeer{inNamespace(metav1.NamespaceSystem)}, Ports: dnsPorts()},
			},
		},
	}}
	if in := o.ingress(); len(in) > 0 {
		list = append(list, &networkingv1.NetworkPolicy{ObjectMeta: meta("podyard-in-" + hash(owner)), Spec: networkingv1.NetworkPolicySpec{
			PodSelector: mine, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress: []networkingv1.NetworkPolicyIngressRule{{From: in}},
		}})
	}
	if o.ServerNamespace != "" {
		list = append(list, &networkingv1.NetworkPolicy{ObjectMeta: meta("podyard-server-" + hash(owner)), Spec: networkingv1.NetworkPolicySpec{
			PodSelector: mine, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
			Egress: []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{inNamespace(o.ServerNamespace)}}},
		}})
	}
	return list
}

// ingress is who may connect to pods. Users come to host ports from any address; the pods of others do
// not, because they reach no private one.
func (o *Options) ingress() (from []networkingv1.NetworkPolicyPeer) {
	if o.ServerNamespace != "" {
		from = append(from, inNamespace(o.ServerNamespace))
	}
	if !o.HostPorts.empty() {
		from = append(from, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: "0.0.0.0/0"}},
			networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: "::/0"}})
	}
	return from
}

func inNamespace(name string) networkingv1.NetworkPolicyPeer {
	return networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: name}}}
}

func dnsPorts() (list []networkingv1.NetworkPolicyPort) {
	for _, protocol := range []corev1.Protocol{corev1.ProtocolUDP, corev1.ProtocolTCP} {
		port := intstr.FromInt32(dnsPort)
		list = append(list, networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: &port})
	}
	return list
}
