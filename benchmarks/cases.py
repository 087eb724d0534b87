"""The cases: lookups, updates and `fit` with all rows in DRAM."""

from benchmarks.measure import Goal, Result, alternate

MODEL_ROWS, MODEL_DIM = 5_000_000, 16  # what goals are for


def _ratios(samples, goals):
    """Goals "at least n times as fast as a peer", of the peers that took part."""
    return [
        Goal(f"times as fast as {peer}", samples.ratio(peer, "tiered"), limit)
        for peer, limit in goals.items()
        if peer in samples.medians
    ]


def in_memory(settings, vocabulary, dim):
    """Yields lookups and an Adagrad step of one table. What they give is checked."""
    systems = ["gather", "tiered", "dense", *settings.peers]
    with settings.workers({name: name for name in systems}) as all_workers:
        facts = {}
        for name, worker in all_workers.items():
            facts[name] = settings.setup(worker, vocabulary, dim)
        goals = settings.has_goals(vocabulary, dim)

        samples = alternate(all_workers, "lookup", settings.rounds, settings.seconds)
        result = Result.of("lookup", vocabulary, dim, samples, setup=facts)
        gather = Goal("times the plain gather", samples.ratio("tiered", "gather"), 2.5, most=True)
        result.goals = goals * [*_ratios(samples, {"tfra": 6, "fbgemm": 3}), gather]
        yield result

        training = {k: v for k, v in all_workers.items() if k not in ("gather", "dense")}
        samples = alternate(training, "train_lookup", settings.rounds, settings.seconds)
        result = Result.of("training lookup", vocabulary, dim, samples)
        result.goals = goals * _ratios(samples, {"tfra": 4})
        yield result

        updating = {k: v for k, v in all_workers.items() if k != "gather"}
        errors = {name: worker.call("check_update") for name, worker in updating.items()}
        samples = alternate(updating, "update", settings.rounds, settings.seconds)
        result = Result.of("Adagrad step", vocabulary, dim, samples, largest_difference=errors)
        result.goals = goals * _ratios(samples, {"fbgemm": 8, "tfra": 4})
        yield result
        yield _footprint(all_workers["tiered"].call("facts"), vocabulary, dim, facts["tiered"])


def _footprint(facts, vocabulary, dim, setup):
    of_row = facts["dram_bytes_per_row"] / facts["vector_and_state_bytes"]
    result = Result("bytes of a row", vocabulary, dim, facts=facts)
    result.facts["resident_bytes_per_row"] = setup["resident_bytes"] / vocabulary
    result.goals = [Goal("times its vector and state", of_row, 1.25, most=True)]
    return result


def fit(settings, vocabulary, dim, optimizer):
    """Yields `fit` of 26 features, Dense 64, Dense 1."""
    systems = ["tiered", "dense"] + ["tfra"] * ("tfra" in settings.peers)
    with settings.workers({name: name for name in systems}) as all_workers:
        for worker in all_workers.values():
            settings.setup(worker, vocabulary, dim, optimizer=optimizer)
            worker.call("setup_fit", optimizer=optimizer)
        samples = alternate(
            all_workers, None, settings.rounds, settings.fit_seconds, call="measure_fit"
        )
        losses = {name: worker.call("facts")["losses"][0] for name, worker in all_workers.items()}
        footprint = all_workers["tiered"].call("facts")
    # Three steps from the same weights. Adam is lazy on tables; TFRA's own optimizer may differ.
    allowed = {"dense": 1e-5 if optimizer == "adagrad" else 1e-2, "tfra": 1e-2}
    for name, loss in losses.items():
        if name in allowed and abs(loss - losses["tiered"]) > allowed[name] * loss:
            raise AssertionError(f"{name} and tf_hps train to different losses: {losses}")
    result = Result.of(f"fit, {optimizer}", vocabulary, dim, samples, losses=losses)
    goals = {"adagrad": {"dense": 1.8, "tfra": 3}, "adam": {"tfra": 6, "dense": 20}}[optimizer]
    result.goals = settings.has_goals(vocabulary, dim) * _ratios(samples, goals)
    yield result
    if optimizer == "adam":
        yield _footprint(footprint, vocabulary, dim, {"resident_bytes": float("nan")})


def columns(settings, vocabulary, dim):
    """Yields 26 layers of a table each against one layer with 26 columns, of the same rows."""
    layers = {"one layer": 1, "26 layers": 26}
    with settings.workers(dict.fromkeys(layers, "tiered")) as all_workers:
        for label, worker in all_workers.items():
            settings.setup(worker, vocabulary, dim, layers=layers[label], columns=True)
            worker.call("setup_fit", optimizer="adagrad")
        for case, operation, call in [
            ("26 layers, training lookup", "train_lookup", "measure"),
            ("26 layers, fit", None, "measure_fit"),
            ("26 layers, lookup", "lookup", "measure"),  # now all rows are in DRAM
        ]:
            seconds = settings.seconds if operation else settings.fit_seconds
            samples = alternate(all_workers, operation, settings.rounds, seconds, call=call)
            result = Result.of(case, vocabulary, dim, samples)
            ratio = samples.ratio("26 layers", "one layer")
            goal = Goal("times the time of one layer", ratio, 1.3, most=True)
            result.goals = settings.has_goals(vocabulary, dim) * [goal]
            yield result
