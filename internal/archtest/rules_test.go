package archtest

import (
	"os"
	"testing"
)

// rules are all rules of this repository. A rule returns its findings.
var rules = map[string]func(*tree) []string{
	"import direction":    importDirection,
	"import owners":       importOwners,
	"direct dependencies": directDependencies,
	"module versions":     moduleVersions,
	"file sizes":          fileSizes,
	"function sizes":      funcSizes,
	"package names":       packageNames,
	"functional options":  functionalOptions,
	"package comments":    packageComments,
	"exported comments":   exportedComments,
	"runnable examples":   runnableExamples,
	"sealed functions":    sealedFunctions,
	"goroutines":          goroutines,
	"sleeps in tests":     sleepsInTests,
	"fresh contexts":      freshContexts,
	"loose ends":          todoComments,
	"skipped tests":       skippedTests,
	"named tests":         namedTests,
	"test subjects":       testSubjects,
	"error texts":         errorTexts,
	"work policies":       workPolicies,
	"recovery files":      recoveryFiles,
	"row writers":         rowWriters,
	"reserved names":      reservedCollections,
	"clocks":              clocks,
	"alarm writers":       alarmWriters,
	"unarmed writes":      unarmedWrites,
	"transports":          transportImports,
	"wake names":          wakeNames,
	"layers":              layers,
	"leaf table":          leafTable,
	"selector chains":     selectorChains,
}

func TestRepository(t *testing.T) {
	repository, err := load(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	for name, rule := range rules {
		t.Run(name, func(t *testing.T) {
			for _, finding := range rule(repository) {
				t.Error(finding)
			}
		})
	}
}
