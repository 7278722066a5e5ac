# dpc as a page for browsers: build/web is a folder for any file server (python3 -m http.server -d build/web). Needs Debian's
# emscripten, which has neither zlib nor qsort_r (zlib.h), and no CaDiCaL: --prove says so.
WEB         := $(BUILD)/web
WEB_OBJECTS := $(patsubst $(BUILD)/%,$(WEB)/%,$(filter-out %/solver_cadical.o %/solver_absent.o,$(COMPILER)) $(BALANCE) $(PROGRAM) $(BASE) \
                   $(addprefix $(BUILD)/,compiler/command/main.o compiler/search/solver_absent.o web/absent.o))
EMCC        := NODE_PATH=/usr/share/nodejs emcc -O2
define compiled_for_web
@mkdir -p $(@D)
$(EMCC) -std=c11 -D_GNU_SOURCE -I. -I$(BUILD) -Iweb -include web/zlib.h -MMD -MP -c -o $@ $<
endef
$(WEB)/%.o: %.c
	$(compiled_for_web)
$(WEB)/%.o: $(BUILD)/%.c
	$(compiled_for_web)
$(WEB_OBJECTS): | $(BUILD)/grammar/schedule.tab.h $(BUILD)/grammar/schedule.lex.h
$(WEB)/dpc.js: $(WEB_OBJECTS)
	$(EMCC) -o $@ $^ -s MODULARIZE=1 -s EXPORT_NAME=Dpc -s EXPORTED_RUNTIME_METHODS=FS,callMain -s ALLOW_MEMORY_GROWTH=1 -s TOTAL_STACK=4MB \
	    -s ENVIRONMENT=web,worker,node

.PHONY: web check-web
web:
	@.ci/packages $(BUILD_PACKAGES) emscripten
	@$(MAKE) --no-print-directory -s -j2 $(WEB)/index.html
check-web: web
	@$(MAKE) --no-print-directory -s $(BUILD)/dpc
	node tests/web/same.js $(WEB) $(BUILD)/dpc
$(WEB)/index.html: web/index.html web/page.js web/worker.js $(WEB)/dpc.js $(wildcard schedules/*.dps)
	@mkdir -p $(WEB)/schedules
	cp schedules/*.dps $(WEB)/schedules
	cd schedules && printf '%s\n' *.dps >$(abspath $(WEB))/schedules/names
	cp web/page.js web/worker.js web/index.html $(WEB)
