package docker

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/image"
	"github.com/moby/moby/client"

	"github.com/podyard/podyard/pods"
)

// obtainImage has the image of s on the host for the owner of s, and returns the name that
// the engine knows it by.
func (r *Runtime) obtainImage(ctx context.Context, s pods.Spec) (string, error) {
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
	// To pull an image that is on the host is to ask the registry for it: the engine fetches
	// the manifest with this owner's credential and finds that it has the rest.
	if err := r.pull(ctx, name.full, s); err != nil {
		r.permits.revoke(p)
		return "", err
	}
	r.permits.grant(p)
	return name.full, r.notePulled(ctx, name.full, before)
}

// notePulled notes that an image was pulled where before was, if there was one.
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

// mayUseHost says whether an image that is on the host is used without asking a registry.
func (r *Runtime) mayUseHost(s pods.Spec, name imageName) bool {
	return r.matchesLocalImages(name) || !s.AlwaysPull && (s.Owner == "" || r.opts.Trusted != nil && r.opts.Trusted(s.Owner))
}

func (r *Runtime) matchesLocalImages(name imageName) bool {
	return slices.ContainsFunc(r.opts.LocalImages, func(p string) bool { return imagePattern(p).matches(name) })
}

// findImage is the image on the host that has a full name; nil where there is none.
func (r *Runtime) findImage(ctx context.Context, full string) (*image.InspectResponse, error) {
	found, err := r.api.ImageInspect(ctx, full)
	if errdefs.IsNotFound(err) || err == nil && !isNamed(&found.InspectResponse, full) {
		return nil, nil
	}
	return &found.InspectResponse, err
}

// pull has the engine fetch an image by its full name.
func (r *Runtime) pull(ctx context.Context, full string, s pods.Spec) error {
	auth, err := authHeader(s.Image, s.Credential)
	if err != nil {
		return err
	}
	stream, err := r.api.ImagePull(ctx, full, client.ImagePullOptions{RegistryAuth: auth})
	if err != nil {
		return fmt.Errorf("image %q cannot be pulled: %w", s.Image, redact(err, s.Credential))
	}
	// An engine may accept the call, and report a failure at the end of its answer only.
	var failed error
	for m, err := range stream.JSONMessages(ctx) {
		if err != nil {
			failed = err
			break
		}
		if m.Error != nil {
			failed = errors.New(m.Error.Message)
		}
	}
	if failed != nil {
		failed = fmt.Errorf("image %q cannot be pulled: %w", s.Image, redact(failed, s.Credential))
	}
	return errors.Join(failed, stream.Close())
}

// redact replaces an error in which the registry or the engine repeats the password.
func redact(err error, c pods.Credential) error {
	secret := string(c.Password)
	if secret == "" || !strings.Contains(err.Error(), secret) {
		return err
	}
	return errors.New(strings.ReplaceAll(err.Error(), secret, c.Password.String()))
}

// authHeader is the credential for one call. It is an error when the credential is for another
// registry than that of the image.
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

// registryOf is the host in the name of an image.
func registryOf(image string) string {
	host, _, found := strings.Cut(image, "/")
	if !found || !strings.ContainsAny(host, ".:") && host != "localhost" {
		return "docker.io"
	}
	return canonicalRegistry(host)
}

// canonicalRegistry is the host of a registry, which for docker.io has several names.
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
