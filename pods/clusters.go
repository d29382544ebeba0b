package pods

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"time"

	"github.com/podyard/podyard/internal/container"
	"github.com/podyard/podyard/internal/id"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/problem/idempotency"
)

// A ClusterType says what a cluster is for.
type ClusterType string

// The types. This service offers the first two.
const (
	TrainingCluster    ClusterType = "TRAINING"
	ApplicationCluster ClusterType = "APPLICATION"
	SlurmCluster       ClusterType = "SLURM"
	RayCluster         ClusterType = "RAY"
)

// A Membership is the place of a pod in a cluster. It is all that a store has of a cluster: the
// pod of rank 0 has the id of the cluster, and the cluster is there as long as this pod is.
type Membership struct {
	ID   string // of the cluster, and of its pod of rank 0
	Rank int
	Size int // pods of the cluster
	Type ClusterType
	Name string // of the cluster; that of the pod of rank 0 counts
}

// A Cluster is some pods that were made together and go together.
type Cluster struct {
	ID       string
	Owner    string
	Name     string
	Type     ClusterType
	GPU      GPU // of each pod
	Size     int // pods it was made with
	Template string
	Created  time.Time
	Members  []*Pod // by rank; fewer than Size only while it goes away
}

// Bounds of a cluster.
const (
	MinClusterSize = 2
	MaxClusterSize = 250
)

// Errors of clusters.
var (
	ErrNoCluster = problem.New(problem.NotFound, "cluster not found")
	// ErrMember is the error of a change of one pod of a cluster.
	ErrMember = problem.New(problem.Conflict, "the pod is a member of a cluster, and is changed through the cluster only")
)

// A CreateClusterRequest asks for Size equal pods.
type CreateClusterRequest struct {
	Name    string
	Type    ClusterType
	GPUType string // of each pod
	GPUs    int    // of each pod
	Size    int

	// Pod has the settings that all pods share: those of the container, TemplateID, DataCenterIDs,
	// StartSSH and StartJupyter, Extras. Its other fields are not looked at. TemplateID excludes
	// the settings that a template has.
	Pod CreateRequest

	Idempotency *idempotency.Request // as in [CreateRequest]
	Violations  problem.Violations   // as in [CreateRequest]
}

// An UpdateClusterRequest changes a cluster.
type UpdateClusterRequest struct {
	Name       *string
	Violations problem.Violations // as in [CreateRequest]
}

var clusterOrder = append([]string{
	"name", "type", "compute", "compute/gpuTypeId", "compute/gpuCountPerPod", "compute/podCount",
}, createOrder...)

// clusterPlace is where the body of a cluster has a field of the body of a pod.
func clusterPlace(path string) string {
	switch path {
	case "/gpu/id":
		return "/compute/gpuTypeId"
	case "/gpu/count":
		return "/compute/gpuCountPerPod"
	}
	return path
}

// CreateCluster adds a cluster for owner: all of its pods, in one data center and where they reach
// each other, or none. The errors are those of [Service.Create]; pods of a cluster never wait for
// capacity.
func (s *Service) CreateCluster(ctx context.Context, owner string, r CreateClusterRequest) (*Cluster, error) {
	return idempotency.Do(ctx, r.Idempotency, idempotency.Creation[*Cluster]{
		Guard: &s.idempotency, Store: s.store, Now: s.clock.Now(),
		Check: func() error {
			_, err := s.newMembers(ctx, owner, r)
			return err
		},
		Create: func(k *idempotency.Record) (*Cluster, error) { return s.createCluster(ctx, owner, r, k) },
	})
}

func (s *Service) createCluster(ctx context.Context, owner string, r CreateClusterRequest, k *idempotency.Record) (*Cluster, error) {
	list, err := s.newMembers(ctx, owner, r)
	if err != nil {
		return nil, err
	}
	err = s.affordable(ctx, list, func() error {
		return s.placeAll(ctx, list, func() error { return s.insertAll(ctx, list, k) })
	})
	if err != nil {
		return nil, err
	}
	s.notifyChanged(idsOf(list)...)
	return clusterOf(list), nil
}

func idsOf(list []*Pod) []string {
	ids := make([]string, len(list))
	for i, p := range list {
		ids[i] = p.ID
	}
	return ids
}

// insertAll stores members under ids that are not taken.
func (s *Service) insertAll(ctx context.Context, list []*Pod, k *idempotency.Record) error {
	return id.NewUnique(s.rand, ErrExists, func(made string) error {
		for i, p := range list {
			if p.ID = made; i > 0 {
				var err error
				if p.ID, err = id.New(s.rand); err != nil {
					return fmt.Errorf("pods: make an id: %w", err)
				}
			}
			p.Cluster.ID = made
		}
		if k == nil {
			return s.store.CreateAll(ctx, list, nil)
		}
		record := *k
		record.ID = made
		return s.store.CreateAll(ctx, list, &record)
	})
}

// newMembers returns the pods of a valid request, without ids and hosts.
func (s *Service) newMembers(ctx context.Context, owner string, r CreateClusterRequest) ([]*Pod, error) {
	faults := r.Violations
	r.check(container.Rules{Violations: &faults})
	r.Pod.Name, r.Pod.GPU, r.Pod.CPU = r.Name, &GPURequest{ID: r.GPUType, Count: &r.GPUs}, nil
	r.Pod.Cloud, r.Pod.GlobalNetworking = DefaultCloud, false
	p, err := s.draft(ctx, owner, &r.Pod, &faults)
	if err != nil {
		return nil, err
	}
	var placed problem.Violations
	placed.AddAt(&faults, clusterPlace)
	if err := placed.Err(clusterOrder); err != nil {
		return nil, err
	}
	if p.Injected, err = s.injectedEnv(ctx, owner, &r.Pod); err != nil {
		return nil, err
	}
	list := make([]*Pod, r.Size)
	for i := range list {
		list[i] = p.Clone()
		list[i].Name = r.Name + "-" + strconv.Itoa(i)
		list[i].Cluster = &Membership{Rank: i, Size: r.Size, Type: r.Type, Name: r.Name}
	}
	return list, nil
}

func (r *CreateClusterRequest) check(v container.Rules) {
	switch r.Type {
	case TrainingCluster, ApplicationCluster:
	case SlurmCluster, RayCluster:
		v.Invalid("/type", "%s is not offered: TRAINING and APPLICATION are", r.Type)
	default:
		v.Invalid("/type", "must be TRAINING or APPLICATION")
	}
	if r.Size < MinClusterSize || r.Size > MaxClusterSize {
		v.Invalid("/compute/podCount", "must be %d to %d", MinClusterSize, MaxClusterSize)
	}
	if r.Pod.TemplateID == "" {
		return
	}
	for _, field := range []struct {
		name string
		set  bool
	}{
		{"image", r.Pod.Image != ""},
		{"args", r.Pod.Args != nil}, {"entrypoint", r.Pod.Entrypoint != nil}, {"cmd", r.Pod.Cmd != nil},
		{"disk", r.Pod.Disk != nil}, {"ports", r.Pod.Ports != nil}, {"env", r.Pod.Env != nil},
		{"mounts", r.Pod.Mounts.Persistent != nil || r.Pod.Mounts.Network != nil},
	} {
		if field.set {
			v.BadRequest("/"+field.name, "excludes templateId: the template says it")
		}
	}
}

// placeAll finds hosts for pods that belong together, and calls commit when each has its placement.
// The error without hosts names what was wanted and where.
func (s *Service) placeAll(ctx context.Context, list []*Pod, commit func() error) error {
	first := list[0]
	err := s.placing(ctx, first, func(w PlacementRequest) error {
		return s.placer.placeTogether(ctx, w, len(list), func(found []Placement) error {
			for i, pl := range found {
				if err := s.completePlacement(ctx, first, &pl); err != nil {
					return err
				}
				list[i].Placement = pl
			}
			return commit()
		})
	})
	if errors.Is(err, ErrNoCapacity) {
		return problem.Newf(problem.BadRequest, "%w, for each of %d pods on hosts of one data center that reach each other", err, len(list))
	}
	return err
}

// GetCluster returns a cluster of owner, or ErrNoCluster.
func (s *Service) GetCluster(ctx context.Context, owner, id string) (*Cluster, error) {
	if _, err := s.primary(ctx, owner, id); err != nil {
		return nil, err
	}
	all, err := s.Clusters(ctx, owner)
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(all, func(c *Cluster) bool { return c.ID == id }); i >= 0 {
		return all[i], nil
	}
	return nil, ErrNoCluster // it has just been deleted
}

// primary returns the pod of rank 0 of a cluster of owner.
func (s *Service) primary(ctx context.Context, owner, id string) (*Pod, error) {
	p, err := s.Get(ctx, owner, id)
	if errors.Is(err, ErrNotFound) || err == nil && !p.isPrimary() {
		return nil, ErrNoCluster
	}
	return p, err
}

func (p *Pod) isPrimary() bool { return p.Cluster != nil && p.Cluster.Rank == 0 }

// ClusterOwner returns whose a cluster is, or ErrNoCluster.
func (s *Service) ClusterOwner(ctx context.Context, id string) (string, error) {
	owner, err := s.Owner(ctx, id)
	if err == nil {
		_, err = s.primary(ctx, owner, id)
	}
	if errors.Is(err, ErrNotFound) {
		err = ErrNoCluster
	}
	if err != nil {
		return "", err
	}
	return owner, nil
}

// Clusters returns the clusters of owner, oldest first.
func (s *Service) Clusters(ctx context.Context, owner string) ([]*Cluster, error) {
	return clustersOf(s.List(ctx, owner))
}

// AllClusters returns the clusters of all users, oldest first.
func (s *Service) AllClusters(ctx context.Context) ([]*Cluster, error) {
	return clustersOf(s.All(ctx))
}

// clustersOf returns the clusters of pods, which are in order.
func clustersOf(all []*Pod, err error) ([]*Cluster, error) {
	members := map[string][]*Pod{}
	for _, p := range all {
		if p.Cluster != nil {
			members[p.Cluster.ID] = append(members[p.Cluster.ID], p)
		}
	}
	list := []*Cluster{}
	for _, p := range all {
		if p.isPrimary() {
			list = append(list, clusterOf(members[p.ID]))
		}
	}
	return list, err
}

// clusterOf returns the cluster of its members.
func clusterOf(members []*Pod) *Cluster {
	slices.SortFunc(members, func(a, b *Pod) int { return cmp.Compare(a.Cluster.Rank, b.Cluster.Rank) })
	p := members[0]
	return &Cluster{
		ID: p.ID, Owner: p.Owner, Name: p.Cluster.Name, Type: p.Cluster.Type, GPU: *p.GPU, Size: p.Cluster.Size,
		Template: p.Template, Created: p.Created, Members: members,
	}
}

// UpdateCluster changes the name of a cluster of owner.
func (s *Service) UpdateCluster(ctx context.Context, owner, id string, r UpdateClusterRequest) (*Cluster, error) {
	if _, err := s.primary(ctx, owner, id); err != nil {
		return nil, err
	}
	v := container.Rules{Violations: &r.Violations}
	if r.Name == nil {
		v.Invalid("", "the body must name at least one of name")
	} else {
		v.Name(*r.Name)
	}
	if err := v.Err([]string{"name"}); err != nil {
		return nil, err
	}
	_, err := s.change(ctx, owner, id, func(p *Pod) error {
		p.Cluster.Name = *r.Name
		return nil
	})
	if errors.Is(err, ErrNotFound) {
		err = ErrNoCluster
	}
	if err != nil {
		return nil, err
	}
	return s.GetCluster(ctx, owner, id)
}

// DeleteCluster terminates all pods of a cluster of owner. The cluster is gone at once; the loop of
// the service terminates the pods that this call does not reach.
func (s *Service) DeleteCluster(ctx context.Context, owner, id string) error {
	p, err := s.primary(ctx, owner, id)
	if err != nil {
		return err
	}
	switch err := s.terminateMember(ctx, owner, id); {
	case errors.Is(err, ErrNotFound):
		return ErrNoCluster
	case err != nil:
		return err
	}
	if err := s.terminateOthers(ctx, p); err != nil {
		s.log.WarnContext(ctx, "pods: terminate the members of a cluster", "pod", id, "err", err)
	}
	return nil
}

// terminateOthers terminates the members of a cluster that are still there without their primary.
func (s *Service) terminateOthers(ctx context.Context, primary *Pod) error {
	all, err := s.List(ctx, primary.Owner)
	if err != nil {
		return err
	}
	for _, p := range all {
		if p.Cluster == nil || p.Cluster.ID != primary.ID {
			continue
		}
		if err := s.terminateMember(ctx, p.Owner, p.ID); err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
	}
	return nil
}

func (s *Service) terminateMember(ctx context.Context, owner, id string) error {
	_, err := s.change(ctx, owner, id, func(p *Pod) error {
		actionEffects[Terminate](p)
		s.noteAsked(p, Terminate)
		p.Seen.succeeded()
		p.appendJournal(s.clock.Now(), "the cluster is deleted")
		return nil
	})
	return err
}

// followCluster keeps the members of a cluster together: none outlives the one of rank 0. over says
// that p has been terminated, and that the loop looks at it again.
func (s *Service) followCluster(ctx context.Context, p *Pod) (over bool, err error) {
	terminated := p.Want.Power == PowerTerminated
	switch {
	case p.Cluster == nil, terminated != p.isPrimary():
		return false, nil
	case terminated:
		return false, s.terminateOthers(ctx, p)
	}
	primary, err := s.store.Get(ctx, p.Cluster.ID)
	if err == nil && primary.Want.Power != PowerTerminated {
		return false, nil
	}
	if err != nil && !errors.Is(err, ErrNotFound) {
		return false, fmt.Errorf("pods: find the cluster of %q: %w", p.ID, err)
	}
	if err := s.terminateMember(ctx, p.Owner, p.ID); err != nil && !errors.Is(err, ErrNotFound) {
		return false, err
	}
	return true, nil
}

// primaryPort is where the primary listens for the others. Pods without a network of their own share
// the ports of their host, so there each cluster has its port.
const primaryPort = 29400

// clusterEnv returns the variables of a member of a cluster. private says that it is in the private
// network of its owner; else all members are on one host, and reach each other on its loopback.
func (s *Service) clusterEnv(p *Pod, private bool) map[string]string {
	if p.Cluster == nil {
		return nil
	}
	node, primary, port := "127.0.0.1", "127.0.0.1", primaryPort
	if private {
		node, primary = s.InternalDNS(p), s.InternalDNS(&Pod{ID: p.Cluster.ID})
	} else {
		h := fnv.New32a()
		_, _ = h.Write([]byte(p.Cluster.ID)) // it returns no error
		port = 20000 + int(h.Sum32()%10000)
	}
	at := strconv.Itoa(port)
	return map[string]string{
		"NODE_ADDR": node, "NODE_RANK": strconv.Itoa(p.Cluster.Rank),
		"NUM_NODES": strconv.Itoa(p.Cluster.Size), "NUM_TRAINERS": strconv.Itoa(p.GPU.Count), "WORLD_SIZE": strconv.Itoa(p.Cluster.Size * p.GPU.Count),
		"PRIMARY_ADDR": primary, "MASTER_ADDR": primary, "PRIMARY_PORT": at, "MASTER_PORT": at, "HOST_NODE_ADDR": primary + ":" + at,
	}
}

// placeTogether finds hosts for n times the first of w.Alternatives, all of one data center and one runtime, so that
// the pods reach each other. Else it is as Place.
func (r *Placer) placeTogether(ctx context.Context, w PlacementRequest, n int, commit func([]Placement) error) error {
	groups := r.together(r.candidates(&w))
	for raced := true; raced; { // it ends, as the loop of Place
		raced = false
		for _, hosts := range groups {
			found, err := r.fill(ctx, hosts, &w, n)
			if err != nil {
				return err
			}
			if len(found) < n {
				continue
			}
			if err := commit(found); !errors.Is(err, ErrNoCapacity) {
				return err
			}
			raced = true
		}
	}
	return ErrNoCapacity
}

// together groups hosts whose pods reach each other, in their order. What another server's hosts
// share is not known, so each of them is alone.
func (r *Placer) together(hosts []*Host) (groups [][]*Host) {
	for _, h := range hosts {
		i := slices.IndexFunc(groups, func(g []*Host) bool {
			return h.Runtime != nil && g[0].Runtime != nil && g[0].DataCenter == h.DataCenter && sameRuntime(g[0].Runtime, h.Runtime)
		})
		if i < 0 {
			groups = append(groups, []*Host{h})
			continue
		}
		groups[i] = append(groups[i], h)
	}
	return groups
}

// fill returns up to n placements on hosts that fit at once.
func (r *Placer) fill(ctx context.Context, hosts []*Host, w *PlacementRequest, n int) (found []Placement, err error) {
	p := &plan{PodStore: r.store, used: map[string]int64{}}
	planner := *r
	planner.store = p
	for _, h := range hosts {
		for len(found) < n {
			_, pl, ok, err := planner.firstFit(ctx, h, w)
			if err != nil {
				return nil, err
			}
			if !ok {
				break
			}
			p.take(pl.Claims)
			found = append(found, pl)
		}
	}
	return found, nil
}

// A plan is a store in which claims are taken that nobody else sees.
type plan struct {
	PodStore
	used map[string]int64
}

// Claimed is that of the store when it was first asked, and what was taken since.
func (p *plan) Claimed(ctx context.Context, resource string) (int64, error) {
	if n, ok := p.used[resource]; ok {
		return n, nil
	}
	n, err := p.PodStore.Claimed(ctx, resource)
	if err == nil {
		p.used[resource] = n
	}
	return n, err
}

func (p *plan) take(claims []Claim) {
	for _, c := range claims {
		p.used[c.Resource] += c.Units
	}
}
