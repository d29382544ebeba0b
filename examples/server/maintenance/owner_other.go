//go:build !unix

package maintenance

// An owning is nothing here: there is no root.
type owning struct{}

type inode struct{}

func owned(string) (*owning, error) { return nil, nil }

func (*owning) keep(map[inode]bool) error { return nil }

func (*owning) close() {}

func ofRoot(string) (map[inode]bool, error) { return nil, nil }
