// Package browser has the tests of the console in a real browser. It is a module of its own, so
// that programs with podyard do not depend on what drives the browser.
package browser
