package schedules

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/podyard/podyard/problem"
)

// MaxName is how many characters the name of a declared schedule has at most.
const MaxName = 128

// Declare makes a schedule of owner on an endpoint, or changes the one that was declared with this
// name to match r: for a program that has its schedules in its source. However many copies of the
// program declare it, there is one schedule, and one job for each instant. A declaration that changes
// nothing does not write. Its jobs need no key of the owner, as those of Create do, unless Update has
// changed what they do: then they are refused without one, until the schedule is declared again.
//
// Absent settings get the defaults of Create, but a schedule stays disabled until r.Enabled says
// otherwise: an operator may have disabled it. A schedule that the program declares no longer goes on;
// see Undeclared and Undeclare.
func (s *Service) Declare(ctx context.Context, owner, endpoint, name string, r Settings) (Schedule, error) {
	if name == "" || utf8.RuneCountInString(name) > MaxName {
		return Schedule{}, problem.Newf(problem.Invalid, "the name of a schedule has 1 to %d characters", MaxName)
	}
	now := s.now()
	v := Schedule{
		ID: declaredID(owner, endpoint, name), Name: name, Owner: owner, Endpoint: endpoint, Created: now, After: now,
		TimeZone: "UTC", Overlap: OverlapSkip, CatchUp: CatchUpNone, Enabled: true,
	}
	if err := r.check(s.jobs, &v, true); err != nil {
		return Schedule{}, err
	}
	r.apply(&v)
	declared, err := s.declare(ctx, v, &r)
	if err != nil {
		return Schedule{}, err
	}
	s.declared.Store(v.ID, true)
	s.replan(declared.ID, declared.Next())
	return declared, nil
}

// declare stores v, or gives its settings to the schedule that is there.
func (s *Service) declare(ctx context.Context, v Schedule, r *Settings) (Schedule, error) {
	for range 3 { // another copy of the program may declare it, and somebody remove it, meanwhile
		old, err := s.store.Get(ctx, v.ID)
		switch {
		case errors.Is(err, ErrNotFound):
			err = s.add(ctx, v)
			old = v
		case err == nil:
			if !old.Edited && !r.settle(v).changes(old) {
				return old, nil
			}
			old, err = s.store.Update(ctx, v.ID, func(old *Schedule) error {
				r.settle(v).change(old, v.Created)
				old.Edited = false
				return nil
			})
		}
		if err == nil {
			return old, nil
		}
		if !errors.Is(err, ErrExists) && !errors.Is(err, ErrNotFound) {
			return Schedule{}, fmt.Errorf("schedules: declare %q: %w", v.Name, err)
		}
	}
	return Schedule{}, problem.Newf(problem.Conflict, "the schedule %q is made and removed at the same time", v.Name)
}

func (s *Service) add(ctx context.Context, v Schedule) error {
	s.creating.Lock()
	defer s.creating.Unlock()
	if err := s.hasRoom(ctx, v.Owner); err != nil {
		return err
	}
	return s.store.Create(ctx, v)
}

// settle returns r with the settings of v for those that are absent, without Enabled.
func (r *Settings) settle(v Schedule) *Settings {
	return &Settings{Cron: &v.Cron, TimeZone: &v.TimeZone, Run: v.Run, Secret: v.Secret, Overlap: &v.Overlap, CatchUp: &v.CatchUp, Enabled: r.Enabled}
}

// changes reports whether r would change the settings of a schedule.
func (r *Settings) changes(old Schedule) bool {
	v := old.Clone()
	r.apply(&v)
	return v.Cron != old.Cron || v.TimeZone != old.TimeZone || v.Overlap != old.Overlap || v.CatchUp != old.CatchUp || v.Enabled != old.Enabled ||
		string(v.Run) != string(old.Run) || string(v.Secret) != string(old.Secret)
}

// declaredID is the id of a declared schedule. It has the form of others.
func declaredID(owner, endpoint, name string) string {
	const letters = "0123456789abcdefghijklmnopqrstuvwxyz"
	sum := sha256.Sum256(fmt.Appendf(nil, "schedule %q %q %q", owner, endpoint, name))
	id := make([]byte, 14)
	for i := range id {
		id[i] = letters[int(sum[i])%len(letters)]
	}
	return string(id)
}

// Undeclared returns the schedules, of all users, that were declared, but not in this process since
// New: call it when the program has declared all of its own. Each goes on until Undeclare removes it.
// While a program is replaced by another version, they may be those of the other one.
func (s *Service) Undeclared(ctx context.Context) ([]Schedule, error) {
	all, err := s.store.All(ctx)
	if err != nil {
		return nil, fmt.Errorf("schedules: list: %w", err)
	}
	var list []Schedule
	for _, v := range all {
		if _, here := s.declared.Load(v.ID); v.Name != "" && !here {
			list = append(list, v)
		}
	}
	return list, nil
}

// Undeclare removes a schedule that was declared, or returns ErrNotFound. Its jobs stay.
func (s *Service) Undeclare(ctx context.Context, owner, endpoint, name string) error {
	id := declaredID(owner, endpoint, name)
	if err := s.remove(ctx, id); err != nil {
		return err
	}
	s.declared.Delete(id)
	return nil
}
