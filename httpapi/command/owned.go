package command

// An ownedRecord is a record of a list for operators, as the interface has it
// (docs/decisions.md 35).
type ownedRecord[T any] struct {
	Owner string `json:"owner"`
	Item  T      `json:"item"`
}

// listOwned is list for what a call has returned, unless it failed: records of which an operator sees
// the owners.
func listOwned[T any](c *Call, records []T, failed error, owner func(*T) string, columns ...column[T]) error {
	if failed != nil {
		return failed
	}
	if c.server.owner == "" {
		if len(records) == 0 && !c.asJSON() {
			put(c.Stderr, "none of yours; operators see those of all users with -owner '*'\n")
		}
		return list(c, records, columns...)
	}
	if !c.asJSON() {
		return list(c, records, append([]column[T]{{"OWNER", owner}}, columns...)...)
	}
	owned := make([]ownedRecord[T], 0, len(records))
	for i := range records {
		owned = append(owned, ownedRecord[T]{owner(&records[i]), records[i]})
	}
	return writeJSON(c.Stdout, owned)
}
