package volumes

import (
	"slices"
	"time"

	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/problem"
)

func (r *CreateRequest) check(c catalog.Catalog) error {
	f := &r.Violations
	checkName(f, r.Name)
	checkSize(f, r.Size)
	d, ok := c.DataCenter(r.DataCenter)
	switch {
	case r.DataCenter == "":
		f.Add(problem.Invalid, "/dataCenter", "must not be empty")
	case !ok:
		f.Add(problem.Invalid, "/dataCenter", "unknown data center %q", r.DataCenter)
	case len(d.Volumes) == 0:
		f.Add(problem.BadRequest, "/dataCenter", "data center %s has no network volumes", d.ID)
	}
	switch r.Type {
	case "", catalog.Standard, catalog.HighPerformance:
	default:
		f.Add(problem.Invalid, "/type", "must be one of %s, %s", catalog.Standard, catalog.HighPerformance)
	}
	if r.Type != "" && len(d.Volumes) > 0 && !slices.Contains(d.Volumes, r.Type) {
		f.Add(problem.BadRequest, "/type", "data center %s has no volumes of type %s", d.ID, r.Type)
	}
	return f.Err(Fields())
}

// check judges what r says by itself.
func (r *UpdateRequest) check() error {
	f := &r.Violations
	if r.Name != nil {
		checkName(f, *r.Name)
	}
	if r.Size != nil {
		checkSize(f, *r.Size)
	}
	if err := f.Err(Fields()); err != nil {
		return err
	}
	if r.Name == nil && r.Size == nil {
		f.Add(problem.Invalid, "", "the body must name at least one of name, size")
	}
	return f.Err(Fields())
}

// apply writes what r changes into v; an error says that v would shrink.
func (r *UpdateRequest) apply(v *Volume, now time.Time) error {
	if r.Size != nil && *r.Size < v.Size {
		var f problem.Violations
		f.Add(problem.BadRequest, "/size", "must not be below the present %d GB", v.Size)
		return f.Err(Fields())
	}
	if r.Name != nil {
		v.Name = *r.Name
	}
	if r.Size != nil && *r.Size != v.Size {
		v.Size = *r.Size
		v.Sizes = append(v.Sizes, SizeSpan{now, v.Size})
	}
	return nil
}

func checkName(f *problem.Violations, s string) {
	if s == "" {
		f.Add(problem.Invalid, "/name", "must not be empty")
	}
}

func checkSize(f *problem.Violations, gb int) {
	if gb < MinSize || gb > MaxSize {
		f.Add(problem.Invalid, "/size", "must be %d to %d GB", MinSize, MaxSize)
	}
}
