package httpapi

import (
	"github.com/podyard/podyard/internal/openapi"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/pods/volumes"
)

func volumeOperations() []operation {
	return group(APIControl, AreaVolumes,
		op("listNetworkVolumes", "GET /v2/network-volumes", ScopePodsRead, listVolumes, paginated, byOwners),
		op("createNetworkVolume", "POST /v2/network-volumes", ScopePodsWrite, createVolume, keyed),
		op("getNetworkVolume", "GET /v2/network-volumes/{id}", ScopePodsRead, getVolume),
		op("updateNetworkVolume", "PATCH /v2/network-volumes/{id}", ScopePodsWrite, updateVolume),
		op("deleteNetworkVolume", "DELETE /v2/network-volumes/{id}", ScopePodsWrite, deleteVolume),
	)
}

func (b *describer) describeVolumes() map[string]description {
	volume := openapi.For[volumeBody](&b.Builder)
	return map[string]description{
		"listNetworkVolumes":  {summary: "List the caller's network volumes", answers: ok(withPagination(b.list("networkVolumes", volume, true)))},
		"createNetworkVolume": {summary: "Create a network volume", body: b.Component("CreateNetworkVolumeRequest", createVolumeBody()), answers: created(volume)},
		"getNetworkVolume":    {summary: "Get a network volume", answers: ok(volume)},
		"updateNetworkVolume": {
			summary: "Rename or enlarge a network volume", text: "It cannot become smaller.",
			body: b.Component("UpdateNetworkVolumeRequest", updateVolumeBody()), answers: ok(volume),
		},
		"deleteNetworkVolume": {summary: "Delete a network volume with what is in it", text: "400 while a pod or an endpoint uses it.", answers: gone()},
	}
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

// A volumeBody is a network volume on the wire (the public schema).
type volumeBody struct {
	ID         string             `json:"id"`
	Name       string             `json:"name"`
	Size       int                `json:"size"`
	DataCenter string             `json:"dataCenter"`
	Type       catalog.VolumeType `json:"type"`
}

func volumeOf(v volumes.Volume) volumeBody {
	return volumeBody{v.ID, v.Name, v.Size, v.DataCenter, v.Type}
}

func listVolumes(c *call) error {
	list, err := ofOwner(c, c.Volumes.List, c.Volumes.All, func(v volumes.Volume) place { return place{v.Created, v.ID} })
	if err != nil {
		return err
	}
	return writeList(c, "networkVolumes", list, func(v volumes.Volume) string { return v.Owner }, volumeOf)
}

func createVolume(c *call) error {
	var r volumes.CreateRequest
	if err := decode(c, &r, &r.Violations, (*object).createVolume); err != nil {
		return err
	}
	r.Idempotency = c.keyed
	v, err := c.Volumes.Create(c.r.Context(), c.owner, r)
	v, err = onceCreated(c, v, err, c.Volumes.Get)
	return writeMade(c, v, v.ID, err, volumeOf)
}

func (o *object) createVolume(r *volumes.CreateRequest) {
	o.require("name", "size", "dataCenter")
	r.Name = o.text("name")
	r.Size = o.number("size")
	r.DataCenter = o.text("dataCenter")
	r.Type = catalog.VolumeType(o.oneOf("type", string(catalog.Standard), string(catalog.HighPerformance)))
	o.unknown()
}

func getVolume(c *call) error {
	v, err := c.Volumes.Get(c.r.Context(), c.owner, c.r.PathValue("id"))
	return writeRecord(c, v, err, volumeOf)
}

func updateVolume(c *call) error {
	ctx, id := c.r.Context(), c.r.PathValue("id")
	if _, err := c.Volumes.Get(ctx, c.owner, id); err != nil {
		return err // existence comes before the body
	}
	var r volumes.UpdateRequest
	if err := decode(c, &r, &r.Violations, (*object).updateVolume); err != nil {
		return err
	}
	v, err := c.Volumes.Update(ctx, c.owner, id, r)
	return writeRecord(c, v, err, volumeOf)
}

func (o *object) updateVolume(r *volumes.UpdateRequest) {
	r.Name, r.Size = o.str("name"), o.integer("size")
	o.unknown()
}

func deleteVolume(c *call) error {
	return c.noContent(c.Volumes.Delete(c.r.Context(), c.owner, c.r.PathValue("id")))
}
