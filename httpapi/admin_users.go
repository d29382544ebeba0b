package httpapi

import (
	"context"
	"net/http"

	"github.com/podyard/podyard/internal/openapi"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/accounts"
	"github.com/podyard/podyard/pods/secrets"
	"github.com/podyard/podyard/pods/sshkeys"
	"github.com/podyard/podyard/pods/templates"
	"github.com/podyard/podyard/pods/volumes"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/registries"
)

func userOperations() []operation {
	return group(APIControl, AreaAdmin,
		op("deleteUser", "DELETE /v2/admin/users/{name}", ScopeOperator, deleteUser, added),
		op("deleteUserJobs", "DELETE /v2/admin/users/{name}/jobs", ScopeOperator, deleteUserJobs, added),
	)
}

func (b *describer) describeUsers() map[string]description {
	erased := openapi.For[erasure](&b.Builder)
	return map[string]description{
		"deleteUser": {
			summary: "End and erase everything of a user", text: "202: something is left for another call. Repeat it until it answers 404.",
			answers: answers{http.StatusOK: erased, http.StatusAccepted: erased},
		},
		"deleteUserJobs": {
			summary: "End and erase the jobs of a user on all endpoints", text: "It makes room on a disk that a user has filled. The bytes are free soon after.",
			answers: ok(openapi.For[erasedJobs](&b.Builder)),
		},
	}
}

var (
	errNoUser  = problem.New(problem.NotFound, "user not found")
	errOwnUser = problem.New(problem.Conflict, "the user is the caller's own")
)

// An erasure counts the records of a user that were ended or deleted, and those left for
// another call.
type erasure struct {
	Keys       int `json:"keys"`
	Endpoints  int `json:"endpoints"`
	Jobs       int `json:"jobs"` // on endpoints of others
	Pods       int `json:"pods"`
	Volumes    int `json:"volumes"`
	Templates  int `json:"templates"`
	Registries int `json:"registries"`
	SSHKeys    int `json:"sshKeys"`
	Secrets    int `json:"secrets"`
	Schedules  int `json:"schedules"`
	Batches    int `json:"batches"`
	// Waiting are records that something still uses: a pod that is about to end.
	Waiting int `json:"waiting"`
}

// deleteUser ends and deletes everything of a user (docs/decisions.md 35). Each call
// repeats all steps, so the next call completes one that was interrupted.
func deleteUser(c *call) error {
	name := c.r.PathValue("name")
	if name == c.id.User {
		return errOwnUser
	}
	var done erasure
	for _, step := range []func(context.Context, string, *erasure) error{
		c.eraseKeys, c.eraseSchedules, c.eraseBatches, c.eraseEndpoints, c.eraseJobs, c.erasePods, c.eraseTemplates, c.eraseVolumes, c.eraseRegistries, c.eraseSSHKeys, c.eraseSecrets,
	} {
		if err := step(c.r.Context(), name, &done); err != nil {
			return err
		}
	}
	switch {
	case done == erasure{}:
		return errNoUser
	case done.Waiting > 0:
		return writeJSON(c.w, http.StatusAccepted, done)
	}
	return writeJSON(c.w, http.StatusOK, done)
}

// An erasedJobs counts jobs that are erased.
type erasedJobs struct {
	Jobs int `json:"jobs"`
}

// deleteUserJobs ends and erases the jobs of a user on all endpoints, deleted ones too, and nothing else: it makes
// room on a disk that one user has filled (docs/decisions.md 37).
func deleteUserJobs(c *call) error {
	var done erasure
	if err := c.eraseJobs(c.r.Context(), c.r.PathValue("name"), &done); err != nil {
		return err
	}
	return writeJSON(c.w, http.StatusOK, erasedJobs{done.Jobs})
}

// eraseEach deletes records that were listed, unless that failed, and counts them. One that is in use is
// left for later.
func eraseEach[T any](list []T, err error, count *int, waiting *int, remove func(T) error) error {
	if err != nil {
		return err
	}
	for _, x := range list {
		err := remove(x)
		switch {
		case err == nil:
			*count++
		case waiting != nil && problem.KindOf(err) == problem.BadRequest:
			*waiting++
		case problem.KindOf(err) != problem.NotFound:
			return err
		}
	}
	return nil
}

func (c *call) eraseKeys(ctx context.Context, user string, done *erasure) error {
	if c.Accounts == nil {
		return nil
	}
	list, err := c.Accounts.List(ctx, user)
	return eraseEach(list, err, &done.Keys, nil, func(k accounts.Key) error { return c.Accounts.Delete(ctx, c.caller(), k.ID) })
}

func (c *call) eraseSchedules(ctx context.Context, user string, done *erasure) (err error) {
	if c.Jobs != nil && c.schedules() != nil {
		done.Schedules, err = c.schedules().Erase(ctx, user)
	}
	return err
}

func (c *call) eraseBatches(ctx context.Context, user string, done *erasure) (err error) {
	if c.Jobs != nil && c.batches() != nil {
		done.Batches, err = c.batches().Erase(ctx, user)
	}
	return err
}

func (c *call) eraseEndpoints(ctx context.Context, user string, done *erasure) error {
	if c.Jobs == nil {
		return nil
	}
	for e, err := range c.Jobs.AllEndpoints(ctx) {
		if err != nil {
			return err
		}
		if e.Owner != user {
			continue
		}
		if err := c.Jobs.DeleteEndpoint(ctx, user, e.ID); err != nil && problem.KindOf(err) != problem.NotFound {
			return err
		}
		if _, err := c.Jobs.EraseJobs(ctx, user, e.ID); err != nil {
			return err
		}
		done.Endpoints++
	}
	return nil
}

func (c *call) eraseJobs(ctx context.Context, user string, done *erasure) error {
	if c.Jobs == nil {
		return nil
	}
	endpoints, err := c.Jobs.EndpointsOf(ctx, user)
	if err != nil {
		return err
	}
	for _, endpoint := range endpoints {
		n, err := c.Jobs.EraseJobs(ctx, user, endpoint)
		if err != nil {
			return err
		}
		done.Jobs += n
	}
	return nil
}

func (c *call) erasePods(ctx context.Context, user string, done *erasure) error {
	if c.Pods == nil {
		return nil
	}
	list, err := c.Pods.List(ctx, user)
	return eraseEach(list, err, &done.Pods, nil, func(p *pods.Pod) error {
		if p.Cluster != nil {
			return c.Pods.DeleteCluster(ctx, user, p.Cluster.ID)
		}
		return c.Pods.Terminate(ctx, user, p.ID)
	})
}

func (c *call) eraseTemplates(ctx context.Context, user string, done *erasure) error {
	if c.Templates == nil {
		return nil
	}
	list, err := c.Templates.List(ctx, user)
	return eraseEach(list, err, &done.Templates, &done.Waiting, func(t templates.Template) error { return c.Templates.Delete(ctx, user, t.ID) })
}

func (c *call) eraseVolumes(ctx context.Context, user string, done *erasure) error {
	if c.Volumes == nil {
		return nil
	}
	list, err := c.Volumes.List(ctx, user)
	return eraseEach(list, err, &done.Volumes, &done.Waiting, func(v volumes.Volume) error { return c.Volumes.Delete(ctx, user, v.ID) })
}

func (c *call) eraseRegistries(ctx context.Context, user string, done *erasure) error {
	if c.Registries == nil {
		return nil
	}
	list, err := c.Registries.List(ctx, user)
	return eraseEach(list, err, &done.Registries, &done.Waiting, func(r registries.Registry) error { return c.Registries.Delete(ctx, user, r.ID) })
}

func (c *call) eraseSecrets(ctx context.Context, user string, done *erasure) error {
	if c.Secrets == nil {
		return nil
	}
	list, err := c.Secrets.List(ctx, user)
	return eraseEach(list, err, &done.Secrets, nil, func(s secrets.Secret) error { return c.Secrets.Delete(ctx, user, s.ID) })
}

func (c *call) eraseSSHKeys(ctx context.Context, user string, done *erasure) error {
	if c.SSHKeys == nil {
		return nil
	}
	list, err := c.SSHKeys.PublicKeys(ctx, user)
	if err != nil || len(list) == 0 {
		return err
	}
	if _, err := c.SSHKeys.Replace(ctx, user, sshkeys.ReplaceRequest{Keys: []string{}}); err != nil {
		return err
	}
	done.SSHKeys = len(list)
	return nil
}
