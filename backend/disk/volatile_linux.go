package disk

import (
	"bufio"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// whyVolatile returns why a sync of files in dir does not make them durable, or "".
func whyVolatile(dir string) string {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }() // it was only read
	if dir, err = filepath.Abs(dir); err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return ""
	}
	at, why := "", ""
	for lines := bufio.NewScanner(f); lines.Scan(); {
		// 36 35 98:0 / /mnt rw,noatime master:1 - overlay overlay rw,volatile
		about, of, ok := strings.Cut(lines.Text(), " - ")
		fields, types := strings.Fields(about), strings.Fields(of)
		if !ok || len(fields) < 5 || len(types) < 3 {
			continue
		}
		mount := unescapeMount(fields[4])
		if rel, err := filepath.Rel(mount, dir); err != nil || !filepath.IsLocal(rel) || len(mount) < len(at) {
			continue
		}
		at, why = mount, ""
		switch kind := types[0]; {
		case kind == "tmpfs", kind == "ramfs":
			why = kind + " is memory: everything is lost with the machine"
		case kind == "overlay" && slices.ContainsFunc(strings.Split(types[2], ","), func(o string) bool { return o == "volatile" || o == "fsync=volatile" }):
			why = "the overlay file system is mounted volatile and does not sync: acknowledged changes may be lost in a crash of the machine"
		}
	}
	return why
}

// unescapeMount decodes the octal escapes of a path in mountinfo.
func unescapeMount(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
