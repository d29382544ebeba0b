// Package kube runs pods on a Kubernetes cluster.
//
// A run of a pod is one Pod that is never restarted. A pod has one Secret, which is its record, its
// environment and the owner of its other objects. All objects have the label podyard.io/instance.
//
// A stop sets a deadline of the Pod, so that its end and its log can still be read. A Pod is deleted
// before the next run, and by Remove; never by force, because the container of a node that does not answer
// may still run.
//
// What a pod keeps: persistent mounts are PersistentVolumeClaims and stay until Remove. The file system of
// a container does not outlive its run.
package kube
