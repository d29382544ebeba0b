package docker

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/podyard/podyard/pods"
)

// pull has the image here.
func (r *Runtime) pull(ctx context.Context, s pods.Spec) error {
	if !s.AlwaysPull {
		_, err := r.api.ImageInspect(ctx, s.Image)
		if err == nil || !errdefs.IsNotFound(err) {
			return err
		}
	}
	auth, err := authHeader(s.Image, s.Credential)
	if err != nil {
		return err
	}
	stream, err := r.api.ImagePull(ctx, s.Image, client.ImagePullOptions{RegistryAuth: auth})
	if err != nil {
		return fmt.Errorf("image %q cannot be pulled: %w", s.Image, redact(err, s.Credential))
	}
	// An engine may accept the call and tell of the failure at the end of its answer.
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

// authHeader is the credential for one call. A registry gets none that is for another.
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

// canonicalRegistry gives the names of the one registry with many names one.
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
