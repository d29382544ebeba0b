package docker

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/image"
	"github.com/moby/moby/api/types/jsonstream"
	"github.com/moby/moby/client"

	"github.com/podyard/podyard/pods"
)

// obtainImage makes the image of s available on the host for the owner of s. It returns the
// name by which the engine knows the image. It calls tell with how far a pull is.
func (r *Runtime) obtainImage(ctx context.Context, s pods.Spec, tell func(string)) (string, error) {
	name, err := parseImage(s.Image)
	if err != nil {
		return "", err
	}
	if r.mayUseHost(s, name) {
		for _, full := range name.onHost(r.engine.podman) {
			if found, err := r.findImage(ctx, full); err != nil || found != nil {
				r.images.used(full)
				return full, err
			}
		}
	}
	p := permit{s.Owner, name.full}
	done, err := r.permits.acquire(ctx, p)
	if err != nil {
		return "", err
	}
	defer done()
	before, err := r.findImage(ctx, name.full)
	if err != nil {
		return "", err
	}
	if before != nil && !s.AlwaysPull && r.permits.has(p) {
		r.images.used(name.full)
		return name.full, nil
	}
	// Pulling an image that is on the host asks the registry for permission: the engine
	// fetches the manifest with this owner's credential, and no layers that it has.
	if err := r.pullUntil(ctx, name.full, s, tell); err != nil {
		r.permits.revoke(p)
		return "", err
	}
	r.permits.grant(p)
	return name.full, r.notePulled(ctx, name.full, before)
}

// notePulled records the pull of an image. before is the image that had the name before, or
// nil.
func (r *Runtime) notePulled(ctx context.Context, full string, before *image.InspectResponse) error {
	now, err := r.findImage(ctx, full)
	if err != nil || now == nil {
		return err
	}
	id := ""
	if before != nil {
		id = before.ID
	}
	r.images.pulled(full, id, now.ID)
	return nil
}

// mayUseHost reports whether s may use an image on the host without asking a registry.
func (r *Runtime) mayUseHost(s pods.Spec, name imageName) bool {
	return r.matchesLocalImages(name) || !s.AlwaysPull && (s.Owner == "" || r.opts.Trusted != nil && r.opts.Trusted(s.Owner))
}

func (r *Runtime) matchesLocalImages(name imageName) bool {
	return slices.ContainsFunc(r.opts.LocalImages, func(p string) bool { return imagePattern(p).matches(name) })
}

// findImage returns the image on the host with this full name, or nil.
func (r *Runtime) findImage(ctx context.Context, full string) (*image.InspectResponse, error) {
	found, err := r.inspectImage(ctx, full)
	if errdefs.IsNotFound(err) || err == nil && !isNamed(&found.InspectResponse, full) {
		return nil, nil
	}
	return &found.InspectResponse, err
}

// maxInspections is how often an image is looked at while others go.
const maxInspections = 5

// inspectImage asks again if Podman, which reads all images for one, met another one that was
// removed at that moment.
func (r *Runtime) inspectImage(ctx context.Context, ref string) (found client.ImageInspectResult, err error) {
	for range maxInspections {
		found, err = r.api.ImageInspect(ctx, ref)
		if err == nil || errdefs.IsNotFound(err) || !strings.Contains(err.Error(), "locating image with ID") {
			break
		}
	}
	return found, err
}

// pullPatience is how long a pull is tried again, for example while a registry is restarted.
const pullPatience = 5 * time.Minute

// pullUntil pulls an image, and tries again while the cause of a failure may pass.
func (r *Runtime) pullUntil(ctx context.Context, full string, s pods.Spec, tell func(string)) error {
	pause := backoff.NewExponentialBackOff(backoff.WithInitialInterval(time.Second), backoff.WithMultiplier(2),
		backoff.WithMaxInterval(30*time.Second), backoff.WithMaxElapsedTime(pullPatience))
	tries := 0
	return backoff.RetryNotify(func() error {
		tries++
		err := r.pull(ctx, full, s, tell)
		if err != nil && !mayPass(err) {
			return backoff.Permanent(err)
		}
		return err
	}, backoff.WithContext(pause, ctx), func(err error, wait time.Duration) {
		tell(fmt.Sprintf("pull failed, try %d: %s; next try in %v", tries, errorText(err), wait.Round(time.Second)))
	})
}

// passing finds failures of a registry, or of the way to it, that may pass: "received unexpected HTTP
// status: 503 Service Unavailable", "invalid status code from registry 429", "i/o timeout". There is
// only the text to tell them by: engines answer with one status to all.
var passing = regexp.MustCompile(`(?i)(http|status)[a-z: ]* (429|5\d\d)\b|too ?many ?requests|time(d )?out|deadline exceeded|connection reset|broken pipe|\beof\b`)

func mayPass(err error) bool { return passing.MatchString(err.Error()) }

// pull makes the engine pull an image by its full name.
func (r *Runtime) pull(ctx context.Context, full string, s pods.Spec, tell func(string)) error {
	auth, err := authHeader(s.Image, s.Credential)
	if err != nil {
		return err
	}
	stream, err := r.api.ImagePull(ctx, full, client.ImagePullOptions{RegistryAuth: auth})
	if err != nil {
		return fmt.Errorf("image %q cannot be pulled: %w", s.Image, redact(err, s.Credential))
	}
	// An engine may accept the call and report a failure only at the end of its answer.
	var failed error
	var progress pullProgress
	for m, err := range stream.JSONMessages(ctx) {
		if err != nil {
			failed = err
			break
		}
		if m.Error != nil {
			failed = errors.New(m.Error.Message)
		}
		if text := progress.add(m, time.Now()); text != "" {
			tell(text)
		}
	}
	if failed != nil {
		failed = fmt.Errorf("image %q cannot be pulled: %w", s.Image, redact(failed, s.Credential))
	}
	return errors.Join(failed, stream.Close())
}

// pullProgress counts the layers of an image that is being pulled.
type pullProgress struct {
	layers map[string]bool // by id: it is there
	told   time.Time
}

// tellEvery is how often the progress of a pull is told.
const tellEvery = 10 * time.Second

// add notes what an engine says about one layer, and returns a text if it is time for one.
func (p *pullProgress) add(m jsonstream.Message, now time.Time) string {
	if p.told.IsZero() {
		p.layers, p.told = make(map[string]bool), now // a pull that takes a moment is not worth a line
	}
	switch m.Status {
	case "Pulling fs layer", "Waiting":
		if _, known := p.layers[m.ID]; !known {
			p.layers[m.ID] = false
		}
	case "Pull complete", "Already exists":
		p.layers[m.ID] = true
	}
	if len(p.layers) == 0 || now.Sub(p.told) < tellEvery {
		return ""
	}
	p.told = now
	there := 0
	for _, done := range p.layers {
		if done {
			there++
		}
	}
	return fmt.Sprintf("pulling the image: %d of %d layers are there", there, len(p.layers))
}

// redact removes the password from an error in which the registry or the engine repeats it.
func redact(err error, c pods.Credential) error {
	secret := string(c.Password)
	if secret == "" || !strings.Contains(err.Error(), secret) {
		return err
	}
	return errors.New(strings.ReplaceAll(err.Error(), secret, c.Password.String()))
}

// authHeader returns the credential header for one call. It returns an error if the
// credential is for another registry than the image's.
func authHeader(image string, c pods.Credential) (string, error) {
	if c.Username == "" && c.Password == "" {
		return "", nil
	}
	host := registryOf(image)
	if c.Registry != "" && canonicalRegistry(c.Registry) != host {
		return "", fmt.Errorf("image %q is not in registry %q, which the credential is for", image, c.Registry)
	}
	if host == "docker.io" {
		host = "https://index.docker.io/v1/"
	}
	data, err := json.Marshal(map[string]string{
		"username": c.Username, "password": string(c.Password), "serveraddress": host,
	})
	return base64.URLEncoding.EncodeToString(data), err
}

// registryOf returns the registry host in the name of an image.
func registryOf(image string) string {
	host, _, found := strings.Cut(image, "/")
	if !found || !strings.ContainsAny(host, ".:") && host != "localhost" {
		return "docker.io"
	}
	return canonicalRegistry(host)
}

// canonicalRegistry returns the host of a registry. The host docker.io has several names.
func canonicalRegistry(registry string) string {
	host := strings.ToLower(registry)
	host = strings.TrimPrefix(strings.TrimPrefix(host, "https://"), "http://")
	host, _, _ = strings.Cut(host, "/")
	switch host {
	case "index.docker.io", "registry-1.docker.io", "hub.docker.com", "registry.hub.docker.com":
		return "docker.io"
	}
	return host
}
