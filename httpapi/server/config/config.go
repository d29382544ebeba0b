package config

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/podyard/podyard/backend/disk"
	"github.com/podyard/podyard/backend/docker"
	"github.com/podyard/podyard/backend/process"
	"github.com/podyard/podyard/httpapi"
)

// A Config is a configuration. Default, Read and Parse make valid ones. The tag reload of a field
// says whether a reload puts it into force ("live") or a change needs a restart.
type Config struct {
	// Keys are those of users, beside the one with full access.
	Keys []Key `json:"keys" reload:"live"`
	// Images are commands of this host: pods with the name of one are processes.
	Images map[string]Image `json:"images" reload:"live"`
	// Processes is how the processes of pods are kept apart.
	Processes Processes `json:"processes" reload:"live"`
	// Containers is how containers are kept apart.
	Containers Containers `json:"containers" reload:"restart"`
	// Endpoints are what POST /v2/serverless takes, each with an id. Every user may use them.
	Endpoints []jsontext.Value `json:"endpoints" reload:"live"`
	// Catalog is "host", this machine, or "sample", a realistic one with simulated stock.
	Catalog string `json:"catalog" reload:"restart"`
	// Prices are those of the catalog "host".
	Prices  Prices  `json:"prices" reload:"restart"`
	Quotas  Quotas  `json:"quotas" reload:"live"`
	Limits  Limits  `json:"limits" reload:"live"`
	Budgets Budgets `json:"budgets" reload:"live"`
	// Connections are limits of connections, whoever makes them.
	Connections Connections `json:"connections" reload:"restart"`
	Webhook     Webhook     `json:"webhook" reload:"live"`
	Audit       Audit       `json:"audit" reload:"restart"`
	Billing     Billing     `json:"billing" reload:"restart"`
	// LoadBalancer is how load-balancing endpoints are reached, besides /lb/.
	LoadBalancer LoadBalancer `json:"loadBalancer" reload:"restart"`
	// Pods is how pods are reached.
	Pods Pods `json:"pods" reload:"restart"`
	// TrustedProxies are addresses and networks of proxies in front, whose header
	// X-Forwarded-For says where a request is from, for the audit log and the limits of
	// connections.
	TrustedProxies []string `json:"trustedProxies" reload:"restart"`
	// ServiceDomain is the end of the names that pods have in private networks.
	ServiceDomain string `json:"serviceDomain" reload:"restart"`
	// SecretKey is the base64 of the 32 bytes that secrets are sealed with. Default: made at
	// the first start and kept in the data directory.
	SecretKey string `json:"secretKey" reload:"restart"`
	// OldSecretKeys are what SecretKey was before: secrets that they have sealed are sealed with
	// SecretKey at the next start. They can be taken out then.
	OldSecretKeys []string `json:"oldSecretKeys" reload:"restart"`

	file     string // where it is from; empty: there is no file
	givenKey string // of UseSecretKey
	source   []byte // the file, without comments
	shared   []sharedEndpoint
}

// A Key is an entry of Config.Keys, as httpapi.Key is.
type Key struct {
	Key     string    `json:"key"` // as it is sent, or "sha256:" and its digest
	User    string    `json:"user"`
	Scopes  []string  `json:"scopes"`
	Expires time.Time `json:"expires"`
	Exempt  bool      `json:"exempt"` // no quotas, rates and concurrency limits, and no budgets of the user
}

// An Image is an entry of Config.Images, as process.Image is.
type Image struct {
	Command []string          `json:"command"`
	Dir     string            `json:"dir"`
	Env     map[string]string `json:"env"`
	// What users may set, the user of the host that it runs as, and who may run it besides
	// operators: "*" is everybody.
	AllowEnv  []string `json:"allowEnv"`
	AllowArgs bool     `json:"allowArgs"`
	User      string   `json:"user"`
	Users     []string `json:"users"`
}

// Processes is process.Isolation.
type Processes struct {
	Isolation string `json:"isolation"` // "auto", "required" or "none"; default "auto"
	User      string `json:"user"`      // of the host, whom they run as; default nobody where the server is root
	Limit     int    `json:"limit"`     // of processes and threads of a pod; 0 is the default
	Cgroup    string `json:"cgroup"`    // in which those of pods are made; default the server's

	// What there was. A configuration that has them expects what processes do not have any more.
	UIDs     jsontext.Value `json:"uids"`
	Writable jsontext.Value `json:"writable"`
	Deny     jsontext.Value `json:"deny"`
}

// Containers are the fields of docker.Options that an operator sets.
type Containers struct {
	// LocalImages are used as they are on this host, by everybody. Default: none. The user of
	// the key with full access uses every image on the host.
	LocalImages []string `json:"localImages"`
	// ImageRecheck is for how many seconds an owner may use an image on the host before its
	// registry is asked again; 0 is the default.
	ImageRecheck int `json:"imageRecheck"`
	// Subnet are the addresses of the networks of containers, in which each owner has a block.
	// Default: one in which nothing else is.
	Subnet string `json:"subnet"`
	// Isolation is docker.Options.Isolation, and Deny are the addresses that containers may
	// not connect to, besides those of metadata.
	Isolation string   `json:"isolation"`
	Deny      []string `json:"deny"`
	// Images that the server pulled and no container has are removed after so many days, and
	// at once while less of the engine's disk is free in percent. 0 is the default of both;
	// negative: not.
	ImageDays int `json:"imageDays"`
	DiskFree  int `json:"diskFree"`
	// Runtime and UserNamespaces are demands: without them the server does not start.
	Runtime        string `json:"runtime"`
	UserNamespaces bool   `json:"userNamespaces"`
	NewPrivileges  bool   `json:"newPrivileges"` // setuid programs such as sudo work
	// Limits of each container: processes and threads (0: the default, -1: none), limits of ulimit(5)
	// by name (-1: none), MB of /dev/shm (0: half of the memory) and MB of output that the engine
	// keeps (0: the default).
	Pids    int64            `json:"pids"`
	Ulimits map[string]int64 `json:"ulimits"`
	ShmSize int64            `json:"shmSize"`
	LogSize int64            `json:"logSize"`
	// Init runs a small init as the first process of each container.
	Init bool `json:"init"`
	// DiskLimit says that the engine's storage enforces the size of disks, which it cannot tell by
	// itself for overlay2 on XFS with pquota.
	DiskLimit bool `json:"diskLimit"`
	// CapDrop are capabilities that containers do not get. Absent: docker.Options.CapDrop.
	CapDrop []string `json:"capDrop"`
	// CDIDirs are the directories with CDI specifications. Default: those of the standard.
	CDIDirs []string `json:"cdiDirs"`
}

// Quotas are requests of a user to the control API in a window of time; 0 is the default.
type Quotas struct {
	Minute int `json:"minute"`
	Hour   int `json:"hour"`
	Day    int `json:"day"`
}

// Limits bound what users do to the jobs of endpoints.
type Limits struct {
	PerWorkerRate int `json:"perWorkerRate"` // requests in 10 s for each running worker; 0 is the default
}

// LoadBalancer is how load-balancing endpoints are reached.
type LoadBalancer struct {
	// Domain is that of httpapi.Options.LoadBalancerDomain. Default: none.
	Domain string `json:"domain"`
}

// Pods is how pods are reached (docs/decisions.md 53).
type Pods struct {
	// Domain is that of httpapi.Options.PodDomain. Default: "localhost" while the server listens on
	// loopback and has no Options.PublicURL, else none.
	Domain string `json:"domain"`
	// ExposeHTTP is ExposeOpen or ExposeKey. Default: ExposeOpen where the domain is "localhost",
	// else ExposeKey.
	ExposeHTTP string `json:"exposeHttp"`
	// Address is the address of this machine on which ports of pods are published, and which pods
	// and their users are told; http ports are on loopback unless the pod says otherwise
	// (docs/decisions.md 52). Default: loopback while the server listens there, else that of the
	// listener, or for all addresses that of the default route.
	Address string `json:"address"`
}

// How the HTTP ports of pods are reached by their names.
const (
	ExposeOpen = "open" // by who knows the name
	ExposeKey  = "key"  // with a key: see httpapi.PodKeyHeader
)

// A Webhook is how webhooks are sent.
type Webhook struct {
	Secrets []string `json:"secrets"` // the first one signs
	// AllowPrivate lets webhooks go to addresses that are not public. Default: where the
	// server listens on loopback and has no Options.PublicURL (docs/decisions.md 31), and there all
	// but those with the metadata of machines in clouds.
	AllowPrivate *bool `json:"allowPrivate"`
	// Deny are receivers that are refused in any case, as webhook.Options.Deny.
	Deny []string `json:"deny"`
}

// Default is the configuration of a server without a file.
func Default() *Config { return &Config{Catalog: "host", ServiceDomain: "podyard"} }

// Read reads a configuration file. An empty name is Default. What is wrong with the file is
// an *Error.
func Read(file string) (*Config, error) {
	if file == "" {
		return Default(), nil
	}
	text, err := readAtMost(file, maxFile)
	if err != nil {
		return nil, &Error{File: file, Err: err}
	}
	// Editors of Windows put a byte order mark at the head of a text.
	return Parse(file, bytes.TrimPrefix(text, []byte("\ufeff")))
}

const maxFile = 16 << 20 // bytes of a configuration

func readAtMost(file string, n int64) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, n+1))
	if err == nil && int64(len(text)) > n {
		err = fmt.Errorf("is larger than %d bytes", n)
	}
	return text, errors.Join(err, f.Close())
}

// Parse reads the text of a configuration; file is its name in errors, which are of type
// *Error.
func Parse(file string, text []byte) (*Config, error) {
	c := Default()
	c.file, c.source = file, withoutComments(text)
	if jsontext.Value(c.source).Kind() == 'n' { // null would make c empty
		return nil, c.located(errorAt("", "must be a JSON object"))
	}
	err := explain(json.Unmarshal(c.source, c, json.RejectUnknownMembers(true)))
	if err == nil {
		err = c.validate()
	}
	if err != nil {
		return nil, c.located(err)
	}
	return c, nil
}

// Fields are those that the file has, in the order of their names.
func (c *Config) Fields() []string {
	var members map[string]jsontext.Value
	if json.Unmarshal(c.source, &members) != nil { // there is no file
		return nil
	}
	return slices.Sorted(maps.Keys(members))
}

func (c *Config) validate() error {
	for _, check := range []func() error{
		c.checkCatalog, c.checkKeys, c.checkEndpoints, c.checkNumbers, c.checkSecretKey, c.checkDomain, c.checkImages, c.checkProcesses, c.checkContainers, c.checkWebhook, c.checkAudit, c.checkBilling, c.checkPrices, c.checkBudgets,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (c *Config) checkCatalog() error {
	if c.Catalog != "host" && c.Catalog != "sample" {
		return errorAt("/catalog", "must be host or sample, not %q", c.Catalog)
	}
	return nil
}

func (c *Config) checkNumbers() error {
	for _, n := range []struct {
		at    jsontext.Pointer
		value int
	}{
		{"/quotas/minute", c.Quotas.Minute}, {"/quotas/hour", c.Quotas.Hour}, {"/quotas/day", c.Quotas.Day},
		{"/limits/perWorkerRate", c.Limits.PerWorkerRate},
	} {
		if n.value < 0 {
			return errorAt(n.at, "must not be negative")
		}
	}
	return nil
}

func (c *Config) checkSecretKey() error {
	for i, key := range c.OldSecretKeys {
		if b, err := base64.StdEncoding.DecodeString(key); err != nil || len(b) != disk.KeySize {
			return errorAt(elementAt("/oldSecretKeys", i), "must be the base64 of %d bytes", disk.KeySize)
		}
	}
	if c.SecretKey == "" {
		return nil
	}
	if b, err := base64.StdEncoding.DecodeString(c.SecretKey); err != nil || len(b) != disk.KeySize {
		return errorAt("/secretKey", "must be the base64 of %d bytes", disk.KeySize)
	}
	return nil
}

// UseSecretKey has a key that the program was given elsewhere stand in for SecretKey, also after a
// reload. An error says what is wrong with it, and does not show it: it is no key, or the file has
// another one. Empty does nothing.
func (c *Config) UseSecretKey(text string) error {
	if text == "" {
		return nil
	}
	if b, err := base64.StdEncoding.DecodeString(text); err != nil || len(b) != disk.KeySize {
		return fmt.Errorf("must be the base64 of %d bytes", disk.KeySize)
	}
	if c.SecretKey != "" && c.SecretKey != text {
		return errors.New("the configuration has another secretKey: leave one of them out")
	}
	c.SecretKey, c.givenKey = text, text
	return nil
}

func (c *Config) checkDomain() error {
	if err := c.Pods.checkAddress(); err != nil {
		return err
	}
	if !isDomain(c.ServiceDomain) {
		return errorAt("/serviceDomain", "must be labels of letters, digits and '-' with dots between, not %q", c.ServiceDomain)
	}
	for at, d := range map[jsontext.Pointer]string{"/loadBalancer/domain": c.LoadBalancer.Domain, "/pods/domain": c.Pods.Domain} {
		if d != "" && (!isDomain(d) || d != strings.ToLower(d)) {
			return errorAt(at, "must be labels of lower-case letters, digits and '-' with dots between, not %q", d)
		}
	}
	if e := c.Pods.ExposeHTTP; e != "" && e != ExposeOpen && e != ExposeKey {
		return errorAt("/pods/exposeHttp", "must be %q or %q, not %q", ExposeOpen, ExposeKey, e)
	}
	if overlap(c.Pods.Domain, c.LoadBalancer.Domain) {
		return errorAt("/pods/domain", "must not be, contain or lie under loadBalancer.domain, %q", c.LoadBalancer.Domain)
	}
	return nil
}

// overlap reports whether names of one domain can be those of the other one. What pages of pods may do
// to each other they must not do to other parts of the service.
func overlap(a, b string) bool {
	return a != "" && b != "" && (a == b || strings.HasSuffix(a, "."+b) || strings.HasSuffix(b, "."+a))
}

func (c *Config) checkKeys() error {
	_, err := httpapi.NewKeys(c.APIKeys(), time.Now)
	wrong := (*httpapi.KeyError)(nil)
	if !errors.As(err, &wrong) {
		return err
	}
	field := map[string]string{"Secret": "key", "User": "user", "Scopes": "scopes"}[wrong.Field]
	return errorAt(elementAt("/keys", wrong.Index).AppendToken(field), "%w", wrong.Err)
}

func (c *Config) checkImages() error {
	for _, name := range slices.Sorted(maps.Keys(c.Images)) {
		img, place := c.Images[name], imageAt(name)
		if len(img.Command) == 0 {
			return errorAt(place, "command is missing")
		}
		if img.Dir != "" && !filepath.IsAbs(img.Dir) {
			return errorAt(place.AppendToken("dir"), "must be absolute, not %q", img.Dir)
		}
		for i, entry := range img.AllowEnv {
			if err := process.CheckAllowEnv(entry); err != nil {
				return errorAt(elementAt(place.AppendToken("allowEnv"), i), "%w", err)
			}
		}
	}
	return nil
}

func (c *Config) checkProcesses() error {
	const at = jsontext.Pointer("/processes")
	for _, gone := range []struct {
		name  string
		value jsontext.Value
		now   string
	}{
		{"uids", c.Processes.UIDs, "images of processes are for operators and the users in their \"users\", all run as processes.user, and strangers' code belongs in containers: take it out"},
		{"deny", c.Processes.Deny, "processes have the network of this machine, and strangers' code belongs in containers: take it out"},
		{"writable", c.Processes.Writable, "processes in bubblewrap write to their own directories only, and others to what their user may: take it out"},
	} {
		if len(gone.value) > 0 {
			return errorAt(at.AppendToken(gone.name), "there is no such setting any more: %s", gone.now)
		}
	}
	if err := process.CheckMode(c.Processes.Isolation); err != nil {
		return errorAt(at.AppendToken("isolation"), "%w", err)
	}
	if c.Processes.Limit < 0 {
		return errorAt(at.AppendToken("limit"), "must not be negative")
	}
	if path := c.Processes.Cgroup; path != "" && !filepath.IsAbs(path) {
		return errorAt(at.AppendToken("cgroup"), "must be absolute, not %q", path)
	}
	return nil
}

func (c *Config) checkContainers() error {
	const at = jsontext.Pointer("/containers")
	for i, entry := range c.Containers.LocalImages {
		if err := docker.CheckLocalImage(entry); err != nil {
			return errorAt(elementAt(at.AppendToken("localImages"), i), "%w", err)
		}
	}
	if err := docker.CheckIsolation(docker.Isolation(c.Containers.Isolation)); err != nil {
		return errorAt(at.AppendToken("isolation"), "%w", err)
	}
	if c.Containers.Subnet != "" {
		if err := checkPrefix(c.Containers.Subnet, docker.CheckSubnet); err != nil {
			return errorAt(at.AppendToken("subnet"), "%w", err)
		}
	}
	for i, entry := range c.Containers.Deny {
		if err := checkPrefix(entry, docker.CheckDeny); err != nil {
			return errorAt(elementAt(at.AppendToken("deny"), i), "%w", err)
		}
	}
	if err := c.Containers.checkLimits(); err != nil {
		return err
	}
	if c.Containers.DiskFree > 99 {
		return errorAt(at.AppendToken("diskFree"), "must be at most 99 percent")
	}
	if c.Containers.ImageRecheck < 0 {
		return errorAt(at.AppendToken("imageRecheck"), "must not be negative")
	}
	return nil
}

// checkPrefix says what is wrong with the text of a block of addresses.
func checkPrefix(text string, check func(netip.Prefix) error) error {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return errors.New("must be a block of addresses, as 10.0.0.0/8")
	}
	return check(p)
}

func imageAt(name string) jsontext.Pointer { return jsontext.Pointer("/images").AppendToken(name) }

// isDomain reports whether s can be the end of the name of a pod.
func isDomain(s string) bool {
	return len(s) <= 200 && regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*$`).MatchString(s)
}

// APIKeys are the keys of the configuration, in its order.
func (c *Config) APIKeys() []httpapi.Key {
	var keys []httpapi.Key
	for _, k := range c.Keys {
		keys = append(keys, httpapi.Key{Secret: k.Key, User: k.User, Scopes: k.Scopes, Expires: k.Expires, Exempt: k.Exempt})
	}
	return keys
}
