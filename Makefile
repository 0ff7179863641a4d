# make            build/mlcc and, where its libraries are installed, the GLSL plugin
# make check      all tests (no GPU needed); ends with "N passed, N failed"
# make conformance TARGET=c|cuda|vulkan [SUITE=DIR] [FILTER=glob] [VARY=1: all dimensions vary]
# make fuzz       the importer under libFuzzer for FUZZ_SECONDS (60)
# make format     clang-format on all sources
# make SANITIZE=1 the same targets with ASan and UBSan, in build/san

CC       ?= cc
OPT      ?= -O2
WARN     := -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wconversion
ifdef SANITIZE
B        := build/san
SAN      := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
else
B        := build
endif
# hidden: a function of ours that is named like one of libc's must not be called in its place by
# libraries that are loaded, such as NVRTC
CFLAGS   := -std=c11 $(OPT) -g -fvisibility=hidden -D_GNU_SOURCE $(WARN) $(SAN) -I. -Iinclude \
            -I$(B)/gen -MMD -MP
LDLIBS   := -lprotobuf-c -lm -ldl -lpthread

SRC      := $(filter-out compiler/main.c codegen/plugin_glsl.c, \
              $(wildcard compiler/*.c compiler/onnx/*.c ir/*.c passes/*.c codegen/*.c))
OBJ      := $(SRC:%.c=$(B)/%.o) $(B)/gen/onnx.pb-c.o $(B)/gen/embedded.o
RUNTIME  := include/mlcc/model.h $(wildcard runtime/*.c runtime/*.h)
UNIT     := $(patsubst tests/unit/%.c,$(B)/tests/%,$(wildcard tests/unit/test_*.c))

all: $(B)/mlcc plugins

$(B)/mlcc: $(B)/compiler/main.o $(B)/libmlcc.a
	$(CC) $(SAN) -o $@ $^ $(LDLIBS)

$(B)/libmlcc.a: $(OBJ)
	@rm -f $@
	ar rcs $@ $^

$(OBJ) $(B)/compiler/main.o: | $(B)/gen/onnx.pb-c.h

$(B)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -c -o $@ $<

# protobuf-c's output is not held to our warnings
$(B)/gen/onnx.pb-c.h: compiler/onnx/onnx.proto
	@mkdir -p $(@D)
	protoc-c --proto_path=compiler/onnx --c_out=$(@D) onnx.proto
$(B)/gen/onnx.pb-c.c: $(B)/gen/onnx.pb-c.h
$(B)/gen/onnx.pb-c.o: $(B)/gen/onnx.pb-c.h
	$(CC) -std=c11 $(OPT) -w $(SAN) -I$(B)/gen -c -o $@ $(B)/gen/onnx.pb-c.c

# the runtime's sources travel inside mlcc, to be compiled into the .so it writes
$(B)/gen/embedded.c: scripts/embed-files $(RUNTIME)
	@mkdir -p $(@D)
	scripts/embed-files $(RUNTIME) > $@.tmp && mv $@.tmp $@
$(B)/gen/embedded.o: $(B)/gen/embedded.c
	$(CC) $(CFLAGS) -c -o $@ $<

# --- the GLSL compiler plugin: static archives, for Debian's shared libshaderc cannot be loaded -----
SHADERC_LIBS := -lshaderc_combined -lMachineIndependent -lGenericCodeGen -lOGLCompiler \
                -lOSDependent -lSPIRV -lSPIRV-Tools-opt -lSPIRV-Tools
have_shaderc := $(wildcard /usr/include/shaderc/shaderc.h)

.PHONY: plugins
ifneq ($(have_shaderc),)
plugins: $(B)/libmlcc_glsl.so
else
plugins:
	@echo "note: libshaderc-dev is not installed: built without the GLSL compiler (-t vulkan -o x.so)"
endif
$(B)/libmlcc_glsl.so: codegen/plugin_glsl.c codegen/glsl_plugin.h
	@mkdir -p $(@D)
	$(CC) -std=c11 $(OPT) $(WARN) -I. -shared -fPIC -fvisibility=hidden -o $@ $< $(SHADERC_LIBS) \
	    -lstdc++ -lm -Wl,--exclude-libs,ALL -Wl,-z,defs

# --- tests ------------------------------------------------------------------------------------------
$(B)/tests/%: tests/unit/%.c $(B)/libmlcc.a
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -MF $@.d -o $@ $< $(B)/libmlcc.a -lcmocka $(LDLIBS)

.PHONY: all check unit conformance fuzz fuzz-programs format clean
unit: all $(UNIT)
	scripts/run-unit $(UNIT)

check: all $(UNIT) $(B)/tests/conformance
	scripts/check-all $(B)

TARGET ?= c
conformance: all $(B)/tests/conformance
	$(B)/tests/conformance --target $(TARGET) \
	    --suite $(or $(SUITE),$$(scripts/$(if $(VARY),vary-)onnx-tests)) \
	    --report $(B)/conformance-$(if $(VARY),vary-)$(TARGET).txt $(if $(FILTER),--filter '$(FILTER)') \
	    $(if $(MARCH),--march '$(MARCH)')

$(B)/tests/conformance: tests/onnx/conformance.c $(B)/libmlcc.a
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -MF $@.d -o $@ $< $(B)/libmlcc.a $(LDLIBS)

# the readers under libFuzzer; clang only
FUZZ_SECONDS ?= 60
FUZZERS := $(patsubst tests/fuzz/%.c,$(B)/tests/%,$(wildcard tests/fuzz/fuzz_*.c))
fuzz:
	scripts/fuzz $(B) $(FUZZ_SECONDS)
fuzz-programs: $(FUZZERS)
$(B)/tests/fuzz_%: tests/fuzz/fuzz_%.c $(B)/libmlcc.a
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -fsanitize=fuzzer -MF $@.d -o $@ $< $(B)/libmlcc.a $(LDLIBS)

# what scripts/fuzz-graphs compiles random models with
$(B)/tests/graph_peer: tests/fuzz/graph_peer.c $(B)/libmlcc.a
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -MF $@.d -o $@ $< $(B)/libmlcc.a $(LDLIBS)

format:
	clang-format -i $$(git ls-files '*.c' '*.h')

clean:
	rm -rf build

-include $(OBJ:.o=.d) $(B)/compiler/main.d $(UNIT:=.d)
