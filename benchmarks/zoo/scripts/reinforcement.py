"""Learn to balance a pole with PPO of stable-baselines3: no loader, no loss that judges."""

import gymnasium as gym
from stable_baselines3 import PPO

env = gym.make("CartPole-v1")
model = PPO("MlpPolicy", env, n_steps=256, batch_size=64, device="cpu", verbose=1)
model.learn(total_timesteps=200_000)
