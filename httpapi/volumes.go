package httpapi

import (
	"net/http"

	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/pods/volumes"
)

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
	o, err := c.jsonObject(&r.Violations)
	if err != nil {
		return err
	}
	o.createVolume(&r)
	r.Idempotency = c.keyed
	v, err := c.Volumes.Create(c.r.Context(), c.owner, r)
	v, err = onceCreated(c, v, err, c.Volumes.Get)
	if err != nil {
		return err
	}
	c.made = v.ID
	return writeJSON(c.w, http.StatusCreated, volumeOf(v))
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
	if err != nil {
		return err
	}
	return writeJSON(c.w, http.StatusOK, volumeOf(v))
}

func updateVolume(c *call) error {
	ctx, id := c.r.Context(), c.r.PathValue("id")
	if _, err := c.Volumes.Get(ctx, c.owner, id); err != nil {
		return err // existence comes before the body
	}
	var r volumes.UpdateRequest
	o, err := c.jsonObject(&r.Violations)
	if err != nil {
		return err
	}
	o.updateVolume(&r)
	v, err := c.Volumes.Update(ctx, c.owner, id, r)
	if err != nil {
		return err
	}
	return writeJSON(c.w, http.StatusOK, volumeOf(v))
}

func (o *object) updateVolume(r *volumes.UpdateRequest) {
	r.Name, r.Size = o.str("name"), o.integer("size")
	o.unknown()
}

func deleteVolume(c *call) error {
	return c.noContent(c.Volumes.Delete(c.r.Context(), c.owner, c.r.PathValue("id")))
}
