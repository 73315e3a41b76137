"""Whole updates against Stable-Baselines3's own ``train``, with the same networks and draws."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import stable_baselines3
import torch
from agent_cases import A, D, learner_state, make, make_batch
from gymnasium.spaces import Box
from stable_baselines3.common.logger import Logger

UPDATES = 6
CHECKED = (
    *("sac", "sac-fixed", "sac-start", "sac-sde", "td3", "ddpg"),
    *("sac-unequal", "sac-sde-unequal", "td3-unequal"),
)


class Blank(gymnasium.Env):
    observation_space = Box(-np.inf, np.inf, (D,))
    action_space = Box(-2.0, 2.0, (A,))


def copy_network(flat, mlp, modules):
    """Write a flat vector's layers into Torch's linear modules."""
    for (weights, biases), module in zip(mlp.layers(flat), modules, strict=True):
        module.weight.data = torch.tensor(weights.T.copy())
        module.bias.data = torch.tensor(biases.copy())


def linears(module):
    return [part for part in module.modules() if isinstance(part, torch.nn.Linear)]


def make_theirs(agent, monkeypatch, draws):
    """Build SB3's model with the agent's networks, fed the same batches and noise."""
    settings, spec, state = agent.settings, agent.spec, learner_state(agent)
    keywords = {name: getattr(settings, name) for name in ("batch_size", "tau", "gamma")}
    policy = {"net_arch": settings.to_dict()["net_arch"]}
    if settings.algo == "sac":
        keywords |= {"ent_coef": settings.ent_coef, "use_sde": settings.use_sde}
        policy["log_std_init"] = settings.log_std_init
    kind = getattr(stable_baselines3, settings.algo.upper())
    rate = float(settings.learning_rate)
    model = kind("MlpPolicy", Blank(), rate, policy_kwargs=policy, device="cpu", **keywords)
    model.set_logger(Logger(None, []))
    size = spec.critic.size
    for i, (critic, target) in enumerate(
        zip(model.critic.q_networks, model.critic_target.q_networks, strict=True)
    ):
        flat = state["critics"][i * size : (i + 1) * size]
        copy_network(flat, spec.critic, linears(critic))
        copy_network(flat, spec.critic, linears(target))
    if settings.algo == "sac" and not settings.use_sde:
        hidden, head = spec.actor.layers(state["actor"])[:-1], spec.actor.layers(state["actor"])[-1]
        for (weights, biases), module in zip(hidden, linears(model.actor.latent_pi), strict=True):
            module.weight.data = torch.tensor(weights.T.copy())
            module.bias.data = torch.tensor(biases.copy())
        for module, part in ((model.actor.mu, slice(0, A)), (model.actor.log_std, slice(A, None))):
            module.weight.data = torch.tensor(head[0][:, part].T.copy())
            module.bias.data = torch.tensor(head[1][part].copy())
    else:
        copy_network(state["actor"], spec.actor, linears(model.actor))
        if settings.algo != "sac":
            copy_network(state["actor"], spec.actor, linears(model.actor_target))
    monkeypatch.setattr(
        torch.distributions.Normal,
        "rsample",
        lambda self, shape=(): self.loc + self.scale * torch.tensor(draws.pop(0)),
    )
    monkeypatch.setattr(torch.Tensor, "normal_", lambda self, mean, std: std * draws.pop(0))
    return model


def feed(model, batches, monkeypatch):
    """Let the model draw these batches."""
    samples = iter(batches)

    class Samples:
        discounts = None

        def __init__(self, batch):
            self.observations = torch.tensor(batch.observations[0])
            self.actions = torch.tensor(batch.actions[0])
            self.next_observations = torch.tensor(batch.next_observations[0])
            self.rewards = torch.tensor(batch.rewards[0])[:, None]
            self.dones = torch.tensor(batch.terminated[0].astype(np.float32))[:, None]

    monkeypatch.setattr(model.replay_buffer, "sample", lambda *_, **__: Samples(next(samples)))


def flatten(modules):
    parts = [(module.weight.detach().T.reshape(-1), module.bias.detach()) for module in modules]
    return torch.cat([part for pair in parts for part in pair]).numpy()


@pytest.mark.parametrize("case", CHECKED)
def test_updates_are_stable_baselines3s(case, monkeypatch):
    overrides = {"target_entropy": "auto"} if case == "sac-start" else {}
    agent = make(case, **overrides)
    batches = [make_batch(agent, seed=k) for k in range(UPDATES)]
    draws: list = []
    model = make_theirs(agent, monkeypatch, draws)
    feed(model, batches, monkeypatch)
    rows = agent.settings.batch_size
    for batch in batches:
        inputs = agent._inputs(batch)
        noise = inputs.noise[0].copy()
        if agent.settings.use_sde:
            draws += [noise, noise[None]]  # SB3 draws the matrix, then one for every environment
        elif agent.settings.algo == "sac":
            draws += [noise[rows:], noise[:rows]]
        else:
            draws += [torch.tensor(noise)]
        agent._learner.update(inputs, float(agent.settings.learning_rate))
    model.train(UPDATES, rows)
    assert not draws

    state, spec = learner_state(agent), agent.spec
    theirs = np.concatenate([flatten(linears(critic)) for critic in model.critic.q_networks])
    targets = np.concatenate([flatten(linears(c)) for c in model.critic_target.q_networks])
    close = {"rtol": 1e-3, "atol": 2e-5}
    np.testing.assert_allclose(state["critics"], theirs, **close)
    np.testing.assert_allclose(state["targets"], targets, **close)
    actor = state["actor"]
    if agent.settings.algo == "sac" and not agent.settings.use_sde:
        layers = spec.actor.layers(actor)
        mean = flatten([*linears(model.actor.latent_pi), model.actor.mu])
        ours = [part.reshape(-1) for pair in layers[:-1] for part in pair]
        ours += [layers[-1][0][:, :A].reshape(-1), layers[-1][1][:A]]
        np.testing.assert_allclose(np.concatenate(ours), mean, **close)
        log_std = flatten([model.actor.log_std])
        ours = np.append(layers[-1][0][:, A:].reshape(-1), layers[-1][1][A:])
        np.testing.assert_allclose(ours, log_std, **close)
    else:
        np.testing.assert_allclose(actor[: spec.actor.size], flatten(linears(model.actor)), **close)
    if agent.settings.use_sde:
        log_std = model.actor.log_std.detach().numpy().reshape(-1)
        np.testing.assert_allclose(actor[spec.actor.size :], log_std, **close)
    if agent.settings.learns_entropy_coefficient and agent.settings.algo == "sac":
        assert state["ent_coef"][0] == pytest.approx(model.log_ent_coef.item(), abs=1e-5)
