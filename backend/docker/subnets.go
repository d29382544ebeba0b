package docker

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"strings"
)

// blockBits is the prefix length of a network. A block has room for 125 containers of an
// owner.
const blockBits = 25

// defaultSubnets are tried in this order if Options.Subnet is not set.
func defaultSubnets() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("10.201.0.0/16"), netip.MustParsePrefix("172.31.0.0/16"), netip.MustParsePrefix("192.168.128.0/17"),
	}
}

// CheckSubnet returns an error if s cannot be Options.Subnet.
func CheckSubnet(s netip.Prefix) error {
	switch {
	case !s.IsValid() || !s.Addr().Is4():
		return errors.New("must be a block of IPv4 addresses, as 10.201.0.0/16")
	case s != s.Masked():
		return fmt.Errorf("has bits after its prefix: %s is the block", s.Masked())
	case !s.Addr().IsPrivate() && !netip.MustParsePrefix("100.64.0.0/10").Contains(s.Addr()):
		return errors.New("must be of addresses for private use")
	case s.Bits() < 8 || s.Bits() > blockBits-2:
		return fmt.Errorf("must have a prefix of 8 to %d bits: each owner has a block of %d", blockBits-2, 1<<(32-blockBits))
	}
	return nil
}

// blocks yields the blocks in s for networks of owners. It skips the first block, which is
// for gateways.
func blocks(s netip.Prefix) iter.Seq[netip.Prefix] {
	return func(yield func(netip.Prefix) bool) {
		for n := uint32(1); n < 1<<(blockBits-s.Bits()); n++ {
			if !yield(netip.PrefixFrom(addrAt(s, n<<(32-blockBits)), blockBits)) {
				return
			}
		}
	}
}

// addrAt returns the address offset after the first address of s.
func addrAt(s netip.Prefix, offset uint32) netip.Addr {
	a := s.Addr().As4()
	n := (uint32(a[0])<<24 | uint32(a[1])<<16 | uint32(a[2])<<8 | uint32(a[3])) + offset
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}

// freeBlock returns the first block of s that overlaps no prefix in taken.
func freeBlock(s netip.Prefix, taken []netip.Prefix) (netip.Prefix, bool) {
	for block := range blocks(s) {
		if _, found := overlapping(block, taken); !found {
			return block, true
		}
	}
	return netip.Prefix{}, false
}

func overlapping(p netip.Prefix, all []netip.Prefix) (netip.Prefix, bool) {
	for _, other := range all {
		if p.Overlaps(other) {
			return other, true
		}
	}
	return netip.Prefix{}, false
}

// takenBlocks returns the blocks that networks of the engine and routes of this machine
// use.
func (r *Runtime) takenBlocks(ctx context.Context) ([]netip.Prefix, error) {
	all, err := r.engineNetworks(ctx)
	if err != nil {
		return nil, err
	}
	var taken []netip.Prefix
	if r.engine.local() {
		taken = hostRoutes()
	}
	for _, n := range all {
		taken = append(taken, n.blocks...)
	}
	return taken, nil
}

// Subnet returns the addresses of the networks of owners: Options.Subnet, or what was chosen.
// It is invalid if the engine has no networks for them.
func (r *Runtime) Subnet() netip.Prefix { return r.opts.Subnet }

// chooseSubnet chooses the subnet for networks of owners. A subnet from Options must have a
// free block.
func (r *Runtime) chooseSubnet(ctx context.Context) error {
	if !r.engine.networks {
		return nil
	}
	taken, err := r.takenBlocks(ctx)
	if err != nil {
		return err
	}
	if r.opts.Subnet.IsValid() {
		if err := CheckSubnet(r.opts.Subnet); err != nil {
			return fmt.Errorf("subnet %s: %w", r.opts.Subnet, err)
		}
		return subnetHasRoom(r.opts.Subnet, taken)
	}
	var errs []error
	for _, s := range defaultSubnets() {
		err := subnetHasRoom(s, taken)
		if err == nil {
			r.opts.Subnet = s
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func subnetHasRoom(s netip.Prefix, taken []netip.Prefix) error {
	if _, ok := freeBlock(s, taken); ok {
		return nil
	}
	other, _ := overlapping(s, taken)
	return fmt.Errorf("subnet %s has no block that is free: it overlaps %s, which a network of the engine or a route of this machine has", s, other)
}

// createInFreeBlock creates a network in the first block that the engine accepts. The
// engine may use blocks that it does not list.
func (r *Runtime) createInFreeBlock(ctx context.Context, create func(block netip.Prefix) error) error {
	taken, err := r.takenBlocks(ctx)
	if err != nil {
		return err
	}
	for tries := 1; ; {
		block, ok := freeBlock(r.opts.Subnet, taken)
		if !ok {
			return subnetHasRoom(r.opts.Subnet, taken)
		}
		switch err := create(block); {
		case err != nil && isBlockTaken(err):
			taken = append(taken, block)
		case err != nil && isInterfaceGone(err) && tries < maxCreateTries:
			tries++
		default:
			return err
		}
	}
}

// maxCreateTries is how often a network is created while interfaces of this machine go.
const maxCreateTries = 5

// isInterfaceGone reports whether Podman failed because an interface went while it looked at
// the addresses of all of them. Each network that is removed is one.
func isInterfaceGone(err error) bool {
	return strings.Contains(err.Error(), "no such network interface")
}

// isBlockTaken reports whether an engine refused a network because its addresses are in
// use.
func isBlockTaken(err error) bool {
	text := err.Error()
	return strings.Contains(text, "overlaps with other one") || strings.Contains(text, "is already used on the host") || strings.Contains(text, "is being used by a network")
}
