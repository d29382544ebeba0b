package httpapi

import (
	"time"

	"github.com/podyard/podyard/internal/container"
	"github.com/podyard/podyard/internal/openapi"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/accounts"
	"github.com/podyard/podyard/pods/sshkeys"
	"github.com/podyard/podyard/pods/templates"
	"github.com/podyard/podyard/pods/volumes"
	"github.com/podyard/podyard/registries"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/queue"
)

// The schemas of request bodies are recorded from their decoders, with the bounds that the
// services check.

// Patterns that services check by hand.
const (
	portPattern  = `^([1-9][0-9]{0,4})/(tcp|udp|http)$`
	imagePattern = `^[^\s\x00-\x1f\x7f]+$`
	cudaPattern  = `^[0-9]+\.[0-9]+$`
)

// inMillis returns a bound of a member in milliseconds.
func inMillis(d time.Duration) int { return int(d.Milliseconds()) }

// containerRules adds what container.Rules check.
func containerRules(s *openapi.Schema) *openapi.Schema {
	s.At("name").NotEmpty()
	s.At("image").Pattern = imagePattern
	s.At("disk").Between(1, container.MaxDisk)
	s.At("ports").MaxItems = container.MaxPorts
	s.At("ports").UniqueItems = true
	s.At("ports/*").Pattern = portPattern
	s.At("registry").NotEmpty()
	return s
}

// idOrImage requires a template where there is no image.
func idOrImage(s *openapi.Schema) {
	s.At("templateId").NotEmpty()
	required := s.Required[:0]
	for _, name := range s.Required {
		if name != "image" {
			required = append(required, name)
		}
	}
	s.Required = required
	s.AnyOf = []*openapi.Schema{{Required: []string{"image"}}, {Required: []string{"templateId"}}}
}

func mountRules(s *openapi.Schema) {
	s.At("mounts/persistent/size").Between(pods.MinPersistentSize, pods.MaxStorage)
	s.At("mounts/persistent/path").NotEmpty()
	s.At("mounts/network").MaxItems = 1
	s.At("mounts/network/*/volumeId").NotEmpty()
	s.At("mounts/network/*/path").NotEmpty()
}

func createPodBody() *openapi.Schema {
	s := containerRules(recorded(func(o *object) { o.createPod(&pods.CreateRequest{}) }))
	idOrImage(s)
	mountRules(s)
	s.At("disk").Defaults(pods.DefaultDisk)
	s.At("cloud").Defaults(pods.DefaultCloud)
	s.At("gpu/id").NotEmpty()
	s.At("gpu/count").Between(1, container.MaxCount).Defaults(1)
	s.At("gpu/allowedCudaVersions/*").Pattern = cudaPattern
	s.At("gpu/minCudaVersion").Pattern = cudaPattern
	s.At("cpu/id").NotEmpty()
	s.At("cpu/vcpuCount").Between(2, container.MaxCount)
	return s
}

func updatePodBody() *openapi.Schema {
	s := containerRules(recorded(func(o *object) { o.updatePod(&pods.UpdateRequest{}) }))
	mountRules(s)
	s.At("templateId").NotEmpty()
	return s
}

func actionBody() *openapi.Schema { return recorded(func(o *object) { o.action() }) }

func templateSettingsBody(required ...string) *openapi.Schema {
	s := containerRules(recorded(func(o *object) { o.templateSettings(&templates.Settings{}) }))
	s.Required = required
	s.At("mounts/persistent/size").Between(pods.MinPersistentSize, pods.MaxStorage)
	s.At("mounts/persistent/path").NotEmpty()
	openapi.OneOf(s.At("category"), templates.CPU, templates.NVIDIA, templates.AMD)
	s.At("allowedCudaVersions/*").Pattern = cudaPattern
	return s
}

func createVolumeBody() *openapi.Schema {
	s := recorded(func(o *object) { o.createVolume(&volumes.CreateRequest{}) })
	s.At("name").NotEmpty()
	s.At("size").Between(volumes.MinSize, volumes.MaxSize)
	s.At("dataCenter").NotEmpty()
	return s
}

func updateVolumeBody() *openapi.Schema {
	s := recorded(func(o *object) { o.updateVolume(&volumes.UpdateRequest{}) })
	s.At("name").NotEmpty()
	s.At("size").Between(volumes.MinSize, volumes.MaxSize)
	return s.NotEmpty()
}

func createRegistryBody() *openapi.Schema {
	s := recorded(func(o *object) { o.createRegistry(&registries.CreateRequest{}) })
	for _, name := range s.Required {
		s.At(name).NotEmpty()
	}
	return s
}

func sshKeysBody() *openapi.Schema {
	s := recorded(func(o *object) { o.replaceSSHKeys(&sshkeys.ReplaceRequest{}) })
	s.Required = []string{"keys"}
	return s
}

// keyRules adds what accounts.Service checks.
func keyRules(s *openapi.Schema) *openapi.Schema {
	s.At("scopes").NotEmpty().MaxItems = accounts.MaxScopes
	s.At("scopes").UniqueItems = true
	s.At("scopes/*").MaxLength = accounts.MaxScope
	s.At("expires").Format = "date-time"
	return s
}

func createKeyBody() *openapi.Schema {
	s := keyRules(recorded(func(o *object) { o.createKey(&accounts.CreateRequest{}) }))
	s.At("user").NotEmpty().MaxLength = accounts.MaxUser
	s.Required = []string{"scopes"}
	return s
}

func updateKeyBody() *openapi.Schema {
	return keyRules(recorded(func(o *object) { o.updateKey(&accounts.UpdateRequest{}) }))
}

func rotateKeyBody() *openapi.Schema {
	s := recorded(func(o *object) { o.rotateKey(&accounts.RotateRequest{}) })
	s.At("overlap").Between(inMillis(0), inMillis(accounts.MaxOverlap))
	return s
}

func cordonBody(drain bool) *openapi.Schema {
	s := recorded(func(o *object) { o.cordonTarget(&target{}, drain) })
	if !drain {
		delete(s.Properties, "stopPods")
	}
	for _, name := range []string{"host", "endpoint", "server"} {
		s.At(name).NotEmpty()
	}
	return s
}

// endpointRules adds what endpoints.Service checks.
func endpointRules(s *openapi.Schema) *openapi.Schema {
	containerRules(s)
	s.At("templateId").NotEmpty()
	s.At("gpu/pools").NotEmpty()
	s.At("gpu/count").Between(1, container.MaxCount)
	s.At("gpu/allowedCudaVersions/*").Pattern = cudaPattern
	s.At("cpu").NotEmpty()
	s.At("cpu/*/id").NotEmpty()
	s.At("cpu/*/vcpuCount").Between(2, container.MaxCount)
	s.At("workers/min").Between(0, endpoints.MaxWorkers)
	s.At("workers/max").Between(0, endpoints.MaxWorkers)
	s.At("workers/idleTimeout").Between(int(endpoints.MinIdle.Seconds()), int(endpoints.MaxIdle.Seconds()))
	openapi.OneOf(s.At("scaling/type"), endpoints.QueueDelay, endpoints.RequestCount)
	delay := s.At("scaling/queueDelay").Between(0, int(endpoints.MaxDelay.Seconds()))
	delay.Minimum = new(endpoints.MinDelay.Seconds())
	s.At("scaling/requestCount").Between(1, container.MaxCount)
	s.At("scaling").AnyOf = []*openapi.Schema{{Required: []string{"queueDelay"}}, {Required: []string{"requestCount"}}}
	s.At("scaling").MaxProperties = 2
	s.At("timeout").Between(inMillis(queue.MinExecTimeout), inMillis(queue.MaxExecTimeout))
	openapi.OneOf(s.At("flashboot"), endpoints.FlashBootOff, endpoints.FlashBootOn, endpoints.FlashBootPriority)
	return s
}

func createEndpointBody() *openapi.Schema {
	s := endpointRules(recorded(func(o *object) { o.createEndpoint(&endpoints.CreateRequest{}) }))
	s.Required = append(s.Required, "name", "scaling")
	openapi.OneOf(s.At("type"), endpoints.QueueType, endpoints.LoadBalancerType)
	s.At("gpu").Required = []string{"pools"}
	s.At("gpu/minCudaVersion").Pattern = cudaPattern
	s.At("disk").Defaults(endpoints.DefaultDisk)
	s.At("workers/max").Defaults(endpoints.DefaultMaxWorkers)
	s.At("workers/idleTimeout").Defaults(int(endpoints.DefaultIdle.Seconds()))
	s.At("timeout").Defaults(endpoints.DefaultTimeout.Milliseconds())
	idOrImage(s)
	return s
}

func updateEndpointBody() *openapi.Schema {
	return endpointRules(recorded(func(o *object) { o.updateEndpoint(&endpoints.UpdateRequest{}) }))
}

// runBody is the body of run and runsync.
func actionsBody() *openapi.Schema {
	s := recorded(func(o *object) { o.actionRequest() })
	s.At("limit").Between(1, serverless.MaxActionJobs).Defaults(serverless.MaxActionJobs)
	s.At("filter/ids").MaxItems = serverless.MaxActionJobs
	s.At("filter/status").Items = jobStatuses()
	s.At("filter").NotEmpty()
	return s
}

func runBody() *openapi.Schema {
	s := recorded(func(o *object) { o.run(&serverless.Request{}) })
	s.Required = []string{"input"}
	s.At("webhook").Format = "uri"
	s.At("webhook").NotEmpty()
	s.At("policy/executionTimeout").Between(inMillis(queue.MinExecTimeout), inMillis(queue.MaxExecTimeout))
	s.At("policy/ttl").Between(inMillis(queue.MinTTL), inMillis(queue.MaxTTL)).Defaults(queue.DefaultTTL.Milliseconds())
	q := s.At("queue")
	q.Added = true
	q.At("priority").Between(0, queue.MaxPriority).Defaults(queue.DefaultPriority)
	q.At("key").NotEmpty().MaxLength = queue.MaxKey
	q.At("startAfter").Type = append(q.At("startAfter").Type, "string")
	retryRules(q.At("retry"))
	return s
}

// updateQueueBody is the body of updateEndpointQueue.
func updateQueueBody() *openapi.Schema {
	s := recorded(func(o *object) { o.queueUpdate(&endpoints.QueueUpdate{}) })
	for _, name := range [...]string{"perKey", "perUser", "total"} {
		s.At(name).Between(1, endpoints.MaxRunning)
	}
	s.At("ageing").Between(0, inMillis(endpoints.MaxAgeing)).Defaults(queue.DefaultAgeing.Milliseconds())
	s.At("deadLetter").Between(0, inMillis(queue.MaxDeadLetter)).Defaults(0)
	s.At("paused").Defaults(false)
	retryRules(s.At("retry"))
	return s
}

// retryRules adds what serverless.Service checks of a retry policy.
func retryRules(s *openapi.Schema) {
	def := serverless.DefaultRetry()
	s.At("attempts").Between(1, queue.MaxAttempts).Defaults(def.Attempts)
	s.At("delay").AtLeast(0).Defaults(def.Delay.Milliseconds())
	s.At("factor").Between(1, queue.MaxFactor).Defaults(def.Factor)
	s.At("maxDelay").AtLeast(0).Defaults(def.MaxDelay.Milliseconds())
	s.At("jitter").Between(0, 1).Defaults(def.Jitter)
	s.At("timeouts").Defaults(def.Timeouts)
}
