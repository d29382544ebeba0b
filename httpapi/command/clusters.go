package command

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/podyard/podyard/httpapi/client"
)

func clusterCommands() []Command {
	return []Command{
		{Name: "clusters list", Remote: true, Summary: "list clusters", Example: "clusters list", New: listClusters},
		{Name: "clusters get", Args: "CLUSTER", Remote: true, Summary: "show a cluster", Example: "clusters get 19dl...", New: getCluster},
		{Name: "clusters pods", Args: "CLUSTER", Remote: true, Summary: "list the pods of a cluster, by rank", Example: "clusters pods 19dl...", New: listClusterPods},
		{
			Name: "clusters create", Remote: true, Summary: "create a cluster: all of its pods, or none",
			Help:    "-file has the body of POST /v2/clusters, and the other flags take precedence.",
			Example: "clusters create -name train -image org/train -gpu 'NVIDIA H200' -gpus 4 -pods 2", New: createCluster,
		},
		{Name: "clusters rename", Args: "CLUSTER NAME", Remote: true, Summary: "change the name of a cluster", Example: "clusters rename 19dl... other", New: renameCluster},
		{
			Name: "clusters delete", Args: "CLUSTER...", Remote: true, Summary: "delete clusters with their pods", Example: "clusters delete 19dl...",
			New: ends("deleted", func(c *Call) func(context.Context, string) error { return c.Client.Clusters.Delete }),
		},
	}
}

// size is what a cluster has: "2 x 4 x NVIDIA H200".
func size(v *client.Cluster) string {
	return fmt.Sprintf("%d x %d x %s", v.Compute.Pods, v.Compute.GPUsPerPod, v.Compute.GPU)
}

// podStatuses are those of the pods of a cluster: "2 RUNNING".
func podStatuses(v *client.Cluster) string {
	var parts []string
	for _, status := range slices.Sorted(maps.Keys(v.Pods.ByStatus)) {
		parts = append(parts, fmt.Sprintf("%d %s", v.Pods.ByStatus[status], status))
	}
	return strings.Join(parts, ", ")
}

func showCluster(c *Call, v client.Cluster) error {
	return show(c, v, field{"id", v.ID}, field{"name", v.Name}, field{"owner", v.Owner}, field{"type", v.Type}, field{"compute", size(&v)},
		field{"where", v.DataCenterID}, field{"pods", podStatuses(&v)}, field{"template", v.Template}, field{"ssh", v.Primary.SSH}, field{"created", at(v.CreatedAt)})
}

func listClusters(*flag.FlagSet) func(context.Context, *Call) error {
	return func(ctx context.Context, c *Call) error {
		list, err := c.Client.Clusters.List(ctx)
		return listOwned(
			c, list, err, func(v *client.Cluster) string { return v.Owner },
			column[client.Cluster]{"ID", func(v *client.Cluster) string { return v.ID }},
			column[client.Cluster]{"NAME", func(v *client.Cluster) string { return short(v.Name, 30) }},
			column[client.Cluster]{"TYPE", func(v *client.Cluster) string { return v.Type }},
			column[client.Cluster]{"PODS", podStatuses},
			column[client.Cluster]{"COMPUTE", size},
			column[client.Cluster]{"WHERE", func(v *client.Cluster) string { return v.DataCenterID }},
			column[client.Cluster]{"CREATED", func(v *client.Cluster) string { return at(v.CreatedAt) }},
		)
	}
}

func getCluster(*flag.FlagSet) func(context.Context, *Call) error {
	return func(ctx context.Context, c *Call) error {
		v, err := c.Client.Clusters.Get(ctx, c.Args[0])
		return then(c, v, err, showCluster)
	}
}

func listClusterPods(*flag.FlagSet) func(context.Context, *Call) error {
	return func(ctx context.Context, c *Call) error {
		list, err := c.Client.Clusters.Pods(ctx, c.Args[0])
		return listOwned(c, list, err, func(p *client.Pod) string { return p.Owner }, podColumns()...)
	}
}

func createCluster(f *flag.FlagSet) func(context.Context, *Call) error {
	var file, ports string
	var s client.ClusterSettings
	env := map[string]string{}
	f.StringVar(&file, "file", "", "`body` of the request: a JSON object, @FILE, or - for standard input")
	f.StringVar(&s.Name, "name", "", "`name`")
	f.StringVar(&s.Type, "type", "", "TRAINING or APPLICATION (default: TRAINING)")
	f.StringVar(&s.Image, "image", "", "container `image`")
	f.StringVar(&s.TemplateID, "template", "", "`id` of a template")
	f.StringVar(&s.Compute.GPU, "gpu", "", "GPU `type` of each pod")
	f.IntVar(&s.Compute.GPUsPerPod, "gpus", 0, "how many GPUs each pod has (default: 1)")
	f.IntVar(&s.Compute.Pods, "pods", 0, "how many pods (default: 2)")
	f.IntVar(&s.Disk, "disk", 0, "`GB` of disk of each pod (default: the server's)")
	f.StringVar(&ports, "ports", "", "`ports`, separated by commas: 8000/http,22/tcp")
	f.StringVar(&s.Args, "args", "", "`arguments` of the image, or an object with both lists")
	envFlag(f, env, "a `NAME=VALUE` of the environment of each pod; may be repeated")
	return func(ctx context.Context, c *Call) error {
		var base client.ClusterSettings
		if file != "" {
			body, err := readJSON(c, "-file", file)
			if err != nil {
				return err
			}
			if err := json.Unmarshal(body, &base); err != nil {
				return usagef("-file: %w", err)
			}
		}
		if ports != "" {
			s.Ports = strings.Split(ports, ",")
		}
		if len(env) > 0 {
			s.Env = env
		}
		v, err := c.Client.Clusters.Create(ctx, clusterOver(s, base))
		return then(c, v, err, showCluster)
	}
}

// clusterOver returns the settings of the file with those of the flags over them.
func clusterOver(s, base client.ClusterSettings) client.ClusterSettings {
	base.Name, base.Type, base.Image = cmp.Or(s.Name, base.Name), cmp.Or(s.Type, base.Type, "TRAINING"), cmp.Or(s.Image, base.Image)
	base.TemplateID, base.Args, base.Disk = cmp.Or(s.TemplateID, base.TemplateID), cmp.Or(s.Args, base.Args), cmp.Or(s.Disk, base.Disk)
	base.Compute = client.ClusterCompute{
		GPU:        cmp.Or(s.Compute.GPU, base.Compute.GPU),
		GPUsPerPod: cmp.Or(s.Compute.GPUsPerPod, base.Compute.GPUsPerPod, 1), Pods: cmp.Or(s.Compute.Pods, base.Compute.Pods, 2),
	}
	if s.Ports != nil {
		base.Ports = s.Ports
	}
	if s.Env != nil {
		base.Env = s.Env
	}
	return base
}

func renameCluster(*flag.FlagSet) func(context.Context, *Call) error {
	return func(ctx context.Context, c *Call) error {
		v, err := c.Client.Clusters.Rename(ctx, c.Args[0], c.Args[1])
		return then(c, v, err, showCluster)
	}
}
