package volumes_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/pods/volumes"
	"github.com/podyard/podyard/problem"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func good() volumes.CreateRequest {
	return volumes.CreateRequest{Name: "v", Size: 10, DataCenter: "EU-RO-1"}
}

func mustCreate(t *testing.T, s *volumes.Service, owner string) volumes.Volume {
	t.Helper()
	v, err := s.Create(t.Context(), owner, good())
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestAVolumeHasTheFirstTypeOfItsDataCenterUnlessItNamesOne(t *testing.T) {
	s := volumes.New(memory.NewVolumes(), catalog.Sample(), &volumes.Options{Clock: clock.NewManual(start)})
	v := mustCreate(t, s, "alice")
	want := volumes.Volume{
		ID: v.ID, Owner: "alice", Name: "v", Size: 10, DataCenter: "EU-RO-1", Type: catalog.Standard, Created: start,
		Sizes: []volumes.SizeSpan{{From: start, Size: 10}},
	}
	if diff := cmp.Diff(want, v); diff != "" || len(v.ID) != 14 {
		t.Errorf("Create (-want +got):\n%s", diff)
	}
	r := good()
	r.Type = catalog.HighPerformance
	if v, err := s.Create(t.Context(), "alice", r); err != nil || v.Type != catalog.HighPerformance {
		t.Errorf("Create of a fast one = %+v, %v", v, err)
	}
}

func TestFaultsOfARequestAreReportedTogether(t *testing.T) {
	s := volumes.New(memory.NewVolumes(), catalog.Sample(), nil)
	for name, row := range map[string]struct {
		r      volumes.CreateRequest
		status int
		want   []string
	}{
		"nothing":          {volumes.CreateRequest{}, 422, []string{"/name: must not be empty", "/size: must be 10 to 4096 GB", "/dataCenter: must not be empty"}},
		"too large":        {volumes.CreateRequest{Name: "v", Size: 4097, DataCenter: "EU-RO-1", Type: "TAPE"}, 422, []string{"/size: must be 10 to 4096 GB", "/type: must be one of STANDARD, HIGH_PERFORMANCE"}},
		"nowhere":          {volumes.CreateRequest{Name: "v", Size: 10, DataCenter: "MARS-1"}, 422, []string{`/dataCenter: unknown data center "MARS-1"`}},
		"no storage there": {volumes.CreateRequest{Name: "v", Size: 10, DataCenter: "EU-NL-1"}, 400, []string{"/dataCenter: data center EU-NL-1 has no network volumes"}},
		"not fast there":   {volumes.CreateRequest{Name: "v", Size: 10, DataCenter: "US-TX-3", Type: catalog.HighPerformance}, 400, []string{"/type: data center US-TX-3 has no volumes of type HIGH_PERFORMANCE"}},
	} {
		_, err := s.Create(t.Context(), "alice", row.r)
		doc := problem.Of(err)
		if got := doc.Errors; doc.Status != row.status || !cmp.Equal(row.want, got) && doc.Detail != strings.Join(row.want, "") {
			t.Errorf("%s: %d %q %q, want %d %q", name, doc.Status, doc.Detail, got, row.status, row.want)
		}
	}
	if list, err := s.List(t.Context(), "alice"); err != nil || len(list) != 0 {
		t.Errorf("after refused requests: %v, %v; want nothing", list, err)
	}
}

func TestAVolumeOnlyGrows(t *testing.T) {
	s := volumes.New(memory.NewVolumes(), catalog.Sample(), nil)
	v := mustCreate(t, s, "alice")
	set := func(name string, size int) error {
		_, err := s.Update(t.Context(), "alice", v.ID, volumes.UpdateRequest{Name: &name, Size: &size})
		return err
	}
	if err := set("w", 20); err != nil {
		t.Fatal(err)
	}
	if err := set("x", 19); problem.Of(err).Status != 400 {
		t.Errorf("an update that shrinks = %v, want a 400", err)
	}
	if _, err := s.Update(t.Context(), "alice", v.ID, volumes.UpdateRequest{}); problem.Of(err).Status != 422 {
		t.Errorf("an update of nothing = %v, want a 422", err)
	}
	v.Name, v.Size = "w", 20
	if got, err := s.Get(t.Context(), "alice", v.ID); err != nil || got.Name != v.Name || got.Size != v.Size || len(got.Sizes) != 2 {
		t.Errorf("Get = %+v, %v; want %+v", got, err, v)
	}
}

func TestAVolumeOfAnotherUserIsNotFound(t *testing.T) {
	s := volumes.New(memory.NewVolumes(), catalog.Sample(), nil)
	v, ctx := mustCreate(t, s, "alice"), t.Context()
	_, get := s.Get(ctx, "bob", v.ID)
	_, where := s.Volume(ctx, "bob", v.ID)
	_, update := s.Update(ctx, "bob", v.ID, volumes.UpdateRequest{Name: &v.Name})
	for name, err := range map[string]error{"Get": get, "Volume": where, "Update": update, "Delete": s.Delete(ctx, "bob", v.ID)} {
		if !errors.Is(err, volumes.ErrNotFound) || problem.Of(err).Status != 404 {
			t.Errorf("%s by bob = %v, want ErrNotFound", name, err)
		}
	}
	if dc, err := s.Volume(ctx, "alice", v.ID); err != nil || dc != "EU-RO-1" {
		t.Errorf("Volume = %q, %v; want EU-RO-1", dc, err)
	}
}

// dependencies knows which volumes are in use, and records which were released.
type dependencies struct {
	used     bool
	err      error
	released []string
}

func (n *dependencies) VolumeInUse(context.Context, string, string) (bool, error) {
	return n.used, n.err
}

func (n *dependencies) RemoveVolume(_ context.Context, id string) error {
	n.released = append(n.released, id)
	return n.err
}

func TestADeleteReleasesWhatIsInAVolumeThatNoPodMounts(t *testing.T) {
	n := &dependencies{used: true}
	s := volumes.New(memory.NewVolumes(), catalog.Sample(), &volumes.Options{InUse: n, Storage: n})
	v := mustCreate(t, s, "alice")
	if err := s.Delete(t.Context(), "alice", v.ID); !errors.Is(err, volumes.ErrInUse) || problem.Of(err).Status != 400 {
		t.Errorf("Delete while a pod mounts it = %v, want ErrInUse, a 400", err)
	}
	n.used, n.err = false, errors.New("the store is closed")
	if err := s.Delete(t.Context(), "alice", v.ID); !errors.Is(err, n.err) {
		t.Errorf("Delete when nobody can say = %v, want the cause", err)
	}
	if len(n.released) != 0 {
		t.Errorf("%v was released by a delete that was refused", n.released)
	}
	n.err = nil
	if err := s.Delete(t.Context(), "alice", v.ID); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{v.ID}, n.released); diff != "" {
		t.Errorf("released (-want +got):\n%s", diff)
	}
	if _, err := s.Get(t.Context(), "alice", v.ID); !errors.Is(err, volumes.ErrNotFound) {
		t.Errorf("Get of a deleted volume = %v, want ErrNotFound", err)
	}
}

func TestWhatCouldNotBeRemovedIsRemovedByASweep(t *testing.T) {
	n := &dependencies{}
	store := memory.NewVolumes()
	s := volumes.New(store, catalog.Sample(), &volumes.Options{Storage: n})
	v := mustCreate(t, s, "alice")
	n.err = errors.New("the disk is away")
	if err := s.Delete(t.Context(), "alice", v.ID); !errors.Is(err, n.err) {
		t.Errorf("Delete = %v, want the cause", err)
	}
	if err := s.Sweep(t.Context()); !errors.Is(err, n.err) {
		t.Errorf("Sweep = %v, want the cause", err)
	}
	if _, err := s.Get(t.Context(), "alice", v.ID); !errors.Is(err, volumes.ErrNotFound) {
		t.Errorf("Get of a deleted volume = %v, want ErrNotFound", err)
	}
	n.err = nil
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if all, err := store.All(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("the store after the sweep has %v, %v, want nothing", all, err)
	}
}

func TestOneServerHasWhatIsInAVolume(t *testing.T) {
	store := memory.NewVolumes()
	a, b := &dependencies{}, &dependencies{}
	at := func(name string, n *dependencies) *volumes.Service {
		return volumes.New(store, catalog.Sample(), &volumes.Options{Storage: n, Server: name})
	}
	onA, onB := at("a", a), at("b", b)
	v, ctx := mustCreate(t, onA, "alice"), t.Context()
	for _, server := range []string{"b", "a", "b"} {
		if got, err := onA.SettleVolume(ctx, v.ID, server); got != "b" || err != nil {
			t.Errorf("SettleVolume at %s = %q, %v, want b, which was first", server, got, err)
		}
	}
	if err := errors.Join(onA.Delete(ctx, "alice", v.ID), onA.Sweep(ctx)); err != nil {
		t.Fatal(err)
	}
	if len(a.released) > 0 {
		t.Errorf("a has removed %v", a.released)
	}
	_, settle := onA.SettleVolume(ctx, v.ID, "a")
	_, where := onB.VolumeServer(ctx, v.ID)
	_, owner := onB.Owner(ctx, v.ID)
	again := onB.Delete(ctx, "alice", v.ID)
	for what, err := range map[string]error{"SettleVolume": settle, "VolumeServer": where, "Owner": owner, "Delete": again} {
		if !errors.Is(err, volumes.ErrNotFound) {
			t.Errorf("%s of a deleted volume = %v, want ErrNotFound", what, err)
		}
	}
	if err := onB.Sweep(ctx); err != nil || !cmp.Equal(b.released, []string{v.ID}) {
		t.Errorf("Sweep of b = %v and has removed %v, want %s", err, b.released, v.ID)
	}
}
